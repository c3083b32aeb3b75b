"""What verbs answer to --json, one object on stdout: docs/answers.schema.json is made of these types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from agent import wire
from agent.client import RunEnd, RunInfo
from agent.decide.diagnosis import Diagnosis
from agent.decide.ending import JobEnd
from agent.decide.facts import Finding
from agent.output import AGENT, STDERR, STDOUT, Sink, write_all

VERSION = 1
STREAMS = {STDOUT: "stdout", STDERR: "stderr", AGENT: "agent"}


class RunAnswer(NamedTuple):
    """What run, mpirun, torchrun and cancel print with `--json`: when the run is over, with --detach once it begins."""

    version: int
    run: str
    """the run's id"""
    pods: tuple[int, ...]
    """completion indices of its pods, in rank order"""
    end: JobEnd | None
    """null: the run goes on"""
    codes: Mapping[int, int]
    """exit code of each pod's process"""
    lost: Mapping[int, str]
    """why pods were lost"""
    results: str
    """directory on pod 0 with result.json, or empty"""
    missing: str
    """which results could not be stored there, and why"""
    name: str = ""
    """name of the run; empty: it has none"""


class ReleaseAnswer(NamedTuple):
    """What `release --json` prints."""

    version: int
    code: int
    """exit code that every pod ends with"""


class LogLine(NamedTuple):
    """What `logs --json` prints: one line, as an object on a line of its own."""

    version: int
    pod: int
    """completion index"""
    stream: str
    """stdout, stderr or agent"""
    text: str
    """without its end"""


class DryRunAnswer(NamedTuple):
    """What `--dry-run --json` prints."""

    version: int
    workload: str
    text: str
    """what would be started, for people"""


class ClustersAnswer(NamedTuple):
    """What `local list --json` prints."""

    version: int
    clusters: Mapping[str, Mapping[str, int]]
    """name of each cluster, and how many of its pods are in which state"""


class PodAnswer(NamedTuple):
    """A pod of a local cluster."""

    name: str
    """in DNS"""
    node: str
    state: str
    """absent (missing or dead), waiting (still to come), starting, running or ended"""
    code: int | None
    """exit code, once it has ended"""


class ClusterAnswer(NamedTuple):
    """What `local status --json` prints; `a4-agent status --json` in a pod says what its agent does."""

    version: int
    cluster: str
    """its name"""
    pods: Mapping[int, PodAnswer]
    """by completion index"""


class WhyAnswer(NamedTuple):
    """`a4-agent why --json`."""

    version: int
    run: str
    """the run's id"""
    over: bool
    """the run is over: what was found before its end"""
    diagnosis: Diagnosis | None
    """null: it is over, and nothing was seen to hang"""


class DoctorAnswer(NamedTuple):
    """What `doctor --json` prints."""

    version: int
    findings: tuple[Finding, ...]
    """of every check that applies, on every pod and device"""
    silent: Mapping[int, str]
    """why pods did not answer"""


ANSWERS = (RunAnswer, ReleaseAnswer, LogLine, DryRunAnswer, ClustersAnswer, ClusterAnswer, WhyAnswer, DoctorAnswer)


def run_answer(run: RunInfo, ended: RunEnd | None = None) -> RunAnswer:
    """The answer for a run that goes on (`ended`: None), or for one that is over."""
    if ended is None:
        return RunAnswer(VERSION, run.id, run.pods, None, {}, {}, "", "", run.name)
    found = (ended.end, ended.codes, ended.lost, ended.results, ended.missing)
    return RunAnswer(VERSION, run.id, run.pods, *found, run.name)


def write(answer: Any) -> None:
    """One line, also where the answer is long: programs read lines. Raises BrokenPipeError."""
    write_all(STDOUT, json.dumps(wire.to_json(answer)).encode() + b"\n")


class JsonLines(Sink):
    """Writes each line of the pods' output as a LogLine. Takes whole lines."""

    def output(self, pod: int, stream: int, data: bytes) -> None:
        write(LogLine(VERSION, pod, STREAMS[stream], data.removesuffix(b"\n").decode(errors="replace")))

"""Work in a sleeping cluster, as a person in `kubectl exec` does it."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import jsonschema

from agent.workbench.local.running_command import Running
from scripts.result_schema import result_schema
from tests.cluster.conftest import END_SECONDS, RUN_DIR, Start, Trial, all_codes, starting
from tests.deadlines import limits_of_env, limits_of_words

SCHEMA = result_schema(strict=True)
AGENT = (sys.executable, "-m", "agent")
SCRIPT = 'exec "$@"\n'
"""The mounted task script: `a4-agent run script -- COMMAND …` runs any command on every pod."""
SHELL = ("script", "--", "bash", "-c")
MARKED = "grep -lz ^A4_RUN= /proc/[0-9]*/environ 2>/dev/null"
"""Processes of any run."""
RING_FILES = {"/job/ring.py": Path(__file__).with_name("programs").joinpath("ring.py").read_bytes()}
RING = f"exec {sys.executable} /job/ring.py 10"
"""A script whose processes need each other."""
GATE = "until test -e /tmp/go; do sleep 0.02; done"
"""What a run does until `open_gate`."""


def sleeping(start: Start, pods: int = 4, **more: Any) -> Trial:
    """A cluster that has formed, ended its first run (by default `none`), and sleeps."""
    env = {"SLEEP_INFINITY": "true", **more.pop("env", {})}
    trial = start(pods, **{"arguments": ("none",), "script": SCRIPT, **more}, env=env)
    until_phase(trial, "sleeping", *range(pods))
    return trial


@contextmanager
def asleep(pods: int, **more: Any) -> Iterator[Trial]:
    """Such a cluster for all tests of a module; they leave it as they find it."""
    with starting() as start:
        trial = sleeping(start, pods, **more)
        yield trial
        trial.cluster.terminate()
        all_codes(trial, 143)


def until_phase(trial: Trial, phase: str, *indices: int) -> None:
    """Wait until these pods say so. Who follows a run may hear of its beginning and its end before they do."""
    for index in indices:
        trial.until(index, f'grep -qs \'"phase": "{phase}"\' {RUN_DIR}/state.json')


def agent(
    trial: Trial, index: int, *words: str, env: Mapping[str, str] | None = None, cwd: str = "/"
) -> subprocess.CompletedProcess[str]:
    """`a4-agent WORDS` typed in a pod, to its end."""
    trial.limited([*limits_of_words(words), *limits_of_env(env or {})])
    return trial.cluster.exec(index, ["env", "-C", cwd, *AGENT, *words], env=env, timeout=END_SECONDS)


def result(trial: Trial, directory: str = f"{RUN_DIR}/results") -> dict[str, Any]:
    """result.json, which is as the schema says."""
    found: dict[str, Any] = json.loads(trial.cluster.read(0, f"{directory}/result.json"))
    jsonschema.validate(found, SCHEMA)
    return found


def result_of(trial: Trial, done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The result of the run that this command has begun in a sleeping cluster."""
    run = re.search(r"^a4-agent: (\S+) runs on ", done.stderr, re.MULTILINE)
    assert run, done
    return result(trial, f"{RUN_DIR}/runs/{run[1]}")


@contextmanager
def following(
    trial: Trial, index: int, *words: str, env: Mapping[str, str] | None = None
) -> Iterator[tuple[Running, str]]:
    """A command that submits a run and follows it: that command, and the id of the run."""
    with trial.cluster.popen(index, [*AGENT, *words], env=env) as client:
        said = read_until(client.stderr, b"\n").split()
        assert said[2:4] == [b"runs", b"on"], said
        yield client, said[1].decode()


def read_until(file: IO[bytes], end: bytes) -> bytes:
    """What comes, up to `end`, and not a byte more."""
    seen = bytearray()
    while not seen.endswith(end):
        ready, _, _ = select.select([file], [], [], END_SECONDS)
        byte = os.read(file.fileno(), 1) if ready else b""
        assert byte, f"{end!r} did not come, but {bytes(seen)!r}"
        seen += byte
    return bytes(seen)


def open_gate(trial: Trial, *indices: int) -> None:
    """Let runs go on that wait at the gate, in these pods or in all."""
    for index in indices or range(trial.cluster.spec.pods):
        trial.cluster.exec(index, ["touch", "/tmp/go"])


def marked(trial: Trial, *indices: int) -> dict[int, str]:
    """Processes of runs, by the pods that have some."""
    shown = {index: trial.cluster.exec(index, ["bash", "-c", MARKED]).stdout for index in indices}
    return {index: text for index, text in shown.items() if text}


def state(trial: Trial, index: int = 0) -> dict[str, Any]:
    """What `a4-agent status --json` says of a pod's state."""
    shown = agent(trial, index, "status", "--json")
    assert shown.returncode == 0, shown
    data: dict[str, Any] = json.loads(shown.stdout)["state"]
    return data


SCRAPE = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9400/metrics').read().decode())"


def metrics_of(trial: Trial, index: int) -> str:
    """What a pod with A4_METRICS_PORT=9400 tells Prometheus."""
    return trial.cluster.exec(index, [sys.executable, "-c", SCRAPE], timeout=END_SECONDS).stdout


def order(trial: Trial) -> list[int]:
    """Completion indices in the order of the plan."""
    return [peer["index"] for peer in json.loads(trial.cluster.read(0, f"{RUN_DIR}/plan.json"))["peers"]]


def hostnames(trial: Trial, *indices: int) -> list[str]:
    return [trial.cluster.spec.node_name(index) for index in indices]

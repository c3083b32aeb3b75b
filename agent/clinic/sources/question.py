"""What a look at the processes of a run is about, how it is made, and what it gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from agent import wire
from agent.clinic.why.fitting import compact, fit
from agent.clinic.why.pace import Pace
from agent.clinic.why.records import MOST_BYTES, PodRecords, Source
from agent.machine.api import RunMarks

APART_SECONDS = 1.0
"""Between two looks at how far ranks came."""
MOST_OF_ALL = 8 << 20
"""Bytes that the records of all pods have together: pod 0 reads them one after the other."""


class NoAnswer(OSError):
    """Who was asked during a look gave none; the text says why."""


class Question(NamedTuple):
    """Where to look. Paths are those of this pod."""

    pod: PodRecords
    """This pod, of which nothing has been seen yet."""
    marks: RunMarks
    why_dir: str = ""
    ranks_dir: str = ""
    path: str = ""
    """Search path for py-spy."""
    seconds: float = 9.0
    prepared: bool = True
    """A4_WHY: ranks have sockets."""
    ras: str = ""
    """Where NCCL's RAS of this run listens, and that of no other; empty: nowhere."""


class LookAnswer(NamedTuple):
    """What was found in time."""

    records: PodRecords
    text: str = ""
    """For people, as in agent.machine.evidence_text."""
    summary: str = ""


def look_argv(python: str, question: Question) -> list[str]:
    """The process that looks. It prints one line, keeps to `question.seconds`, and may be a little late."""
    return [python, "-Es", "-m", "agent.clinic.sources.look", json.dumps(wire.to_json(question))]


def read_look(question: Question, answer: str) -> LookAnswer:
    """What that process printed, or an answer that says that it did not finish."""
    try:
        return wire.from_json(LookAnswer, json.loads(answer))
    except ValueError:
        why = "the look at the processes did not finish in time"
        return LookAnswer(_no_records(question, why), f"{why}\n", f"{why}\n")


def as_evidence(
    question: Question,
    records: PodRecords,
    paces: Mapping[int, Pace],
    printed: Pace | None,
    mask: Callable[[Any], Any],
    pods: int,
) -> Any:
    """The records as they travel to pod 0: with the pace of each process, masked, and cut to this pod's share.

    printed: how often the part prints; pods: how many share the bytes that pod 0 reads
    """
    processes = tuple(one._replace(pace=paces.get(one.pid)) for one in records.processes)
    try:
        paced = records._replace(processes=processes, printed=printed)
        masked = wire.from_json(PodRecords, mask(wire.to_json(paced)))
    except ValueError as error:  # a secret that is one of our own words cannot be taken out of them
        masked = _no_records(question, f"what was found cannot be masked: {error}")
    return compact(fit(masked, min(MOST_BYTES, MOST_OF_ALL // pods)))


def _no_records(question: Question, why: str) -> PodRecords:
    return question.pod._replace(sources=(Source("processes", "unavailable", why),))

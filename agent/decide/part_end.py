"""How one pod's part of a run went, and how a run ends whose parts cannot begin."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from agent import wire
from agent.cutting import first_of, last_of
from agent.decide.ending import JobEnd
from agent.decide.ranks import RankEnd
from agent.decide.series import PodSeries
from agent.decide.subset import grouped, ranges
from agent.decide.words import lines
from agent.errors import Exit
from agent.launch import Started

MOST_BYTES = 3 << 20
"""How many bytes of JSON a part's end may have: a message of the control channel has 4 MiB at most. What is no text,
or not ASCII, takes six bytes for each character."""


class PartEnd(NamedTuple):
    """How one pod's part went; travels to the coordinator as `done`."""

    status: int | None
    """Exit status of the process, negative for a signal; None: there was none."""
    code: int = 0
    what: str = ""
    """Why no process could be started, or what it left cannot be read; else empty."""
    record: str = ""
    """What the ranks' record says; on the lead."""
    output: str = ""
    """The end of what was printed; on the lead, or where the process failed."""
    error: str = ""
    """Torch's error file of the rank that failed first here."""
    began: float | None = None
    ended: float | None = None
    """When the process was started and had ended, in seconds since 1970."""
    launch: Started | None = None
    """What was started; on the lead."""
    notes: Mapping[str, Any] = {}
    """What the workload found in this pod's files of the run."""
    ranks: Mapping[int, RankEnd] = {}
    stuck: bool = False
    stopped: bool = False
    """The agent of this pod has told it to end: that it ended well says nothing of its work."""
    out_of_memory: bool = False
    """Whether the kernel killed processes of this pod meanwhile because memory had run out."""
    dumps: int = 0
    """Files that torch's watchdog left here before it ended ranks, of a part that failed."""
    left: int = 0
    """Processes of it that SIGKILL has not ended."""
    series: PodSeries | None = None
    """What was written into A4_SERIES_FILE; None: there is none."""
    versions: Mapping[str, str] = {}
    """What a rank here had loaded: python, torch, cuda, nccl, cudnn."""
    collective: float | None = None
    """When the first collective was complete here, in seconds since 1970; None: not known."""
    reading: bool = False
    """This pod's devices are being read: what changed in them follows."""


def loaded_versions(ends: Iterable[PartEnd]) -> dict[str, str]:
    """Name → version, of what ranks had loaded; all of them where pods differ."""
    found: dict[str, dict[str, None]] = {}
    for end in ends:
        for name, version in end.versions.items():
            found.setdefault(name, {})[version] = None
    return {name: ", ".join(versions) for name, versions in found.items()}


def bounded(end: PartEnd, most: int = MOST_BYTES) -> PartEnd:
    """A part's end, cut until its JSON has at most `most` bytes: the output first, of which the end stays, then torch's
    error, the series, the notes and the record, of which the beginning stays."""
    if _size(end) > most:
        kept = last_of(end.output, _left(end._replace(output=""), most))
        whole_lines = end.output[-len(kept) - 1 :].partition("\n")[2]  # a secret that is cut would not be masked
        end = end._replace(output=whole_lines or kept)
    if _size(end) > most:
        end = end._replace(error=first_of(end.error, _left(end._replace(error=""), most)))
    if _size(end) > most:
        end = end._replace(series=None)
    if _size(end) > most:
        end = end._replace(notes={})
    if _size(end) > most:
        end = end._replace(record=first_of(end.record, _left(end._replace(record=""), most)))
    return end if _size(end) <= most else end._replace(launch=None)


def _size(end: PartEnd) -> int:
    return len(json.dumps(wire.to_json(end)))


def _left(rest: PartEnd, most: int) -> int:
    """Bytes that one more text may have, its quotes apart."""
    return max(0, most - _size(rest))


def refusal(ends: Mapping[int, PartEnd], where: Callable[[int], str]) -> JobEnd | None:
    """Why a run cannot begin, by the ends of parts that could not: the reason of the first pod, with all pods that have
    the same, and the others' under it. None when every part could begin."""
    pods_of = grouped({index: (end.code, end.what) for index, end in ends.items() if end.what})
    if not pods_of:
        return None
    (code, first), *others = pods_of
    what, _, hint = first.partition("\n")
    more = [f"{_named(pods_of[other], where)}: {other[1]}" for other in others]
    return JobEnd(code, what, _named(pods_of[code, first], where), lines(hint.strip(), *more))


def not_ready(indices: Sequence[int], seconds: float, where: Callable[[int], str]) -> JobEnd:
    """The end of a run for which these pods are heard but did not get ready in time."""
    what = f"not ready for the run within {seconds:g} s"
    why = "usually a working directory or a program on a file server that does not respond"
    return JobEnd(Exit.TRY_AGAIN, what, _named(indices, where), why)


def _named(indices: Sequence[int], where: Callable[[int], str]) -> str:
    return where(indices[0]) if len(indices) == 1 else f"pods {ranges(indices)}"

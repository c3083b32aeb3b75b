"""The record that rank 0 of a rank program writes: reading it, and comparing it with the plan.

entrypoints/torch_ranks.py and entrypoints/connectivity.py describe the lines. `slots` are the ranks of each pod,
`names` and `tokens` those of the pods in the order of the plan: the plan puts rank r on pod r // slots.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from agent import wire
from agent.decide.subset import ranges
from agent.errors import Exit

VERSION = 1
MOST = 8
"""Findings of one kind that are named one by one."""


class RankSeen(NamedTuple):
    """What one rank said of itself, on the line "ranks"."""

    rank: int
    token: str
    """The token of the pod it runs on; empty when it could not be read, then `error` says why."""
    pid: int
    node: str
    error: str = ""
    library: str = ""
    """Version of the libmpi that it uses, "4.1.4"; empty for a rank of torch."""
    device: str = ""
    """"cpu", or the GPU's name; told by ranks of torch alone."""


class Doing(NamedTuple):
    """What was begun: `what` for people, the `number`th of so many."""

    what: str
    number: int
    of: int
    time: float = 0.0
    """Seconds since 1970; 0: not said."""

    def __str__(self) -> str:
        return f"{self.what} ({self.number} of {self.of})" if self.of > 1 else self.what


@dataclass
class RankRecord:
    """What the program wrote, as far as it came. None: that step was not reached.

    A line with "step": "left-out" is read by the method `read_left_out`: each program's record has those of its lines.
    They raise ValueError, KeyError, TypeError and AttributeError for a line that is not as it should be."""

    version: int | None = None
    program: str = ""
    """Empty: the record does not say."""
    launched: int = 0
    ranks: Sequence[RankSeen] | None = None
    doing: Doing | None = None
    """What was begun last, when nothing came after it."""
    first: Doing | None = None
    """The first of its kind."""
    finished: Sequence[int] | None = None
    damaged: list[int] = field(default_factory=list)
    """Numbers (from 1) of lines that could not be read; a last line without its end is none of them."""

    def read_ranks(self, values: Mapping[str, Any]) -> None:
        self.ranks = wire.from_json(tuple[RankSeen, ...], values["ranks"])

    def read_doing(self, values: Mapping[str, Any]) -> None:
        self.doing = doing = wire.from_json(Doing, values)
        if self.first is None or (self.first.what, self.first.of) != (doing.what, doing.of):
            self.first = doing

    def read_end(self, values: Mapping[str, Any]) -> None:
        self.finished = wire.from_json(tuple[int, ...], values["finished"])


class Verdict(NamedTuple):
    """`code` 0: all is right; 65: something is wrong; None: nothing is wrong as far as the record goes, but it
    ends early, so the caller must look for another cause (and end 65 when there is none)."""

    code: int | None
    reasons: list[str]


AnyRecord = TypeVar("AnyRecord", bound=RankRecord)


def parse_lines(text: str, record: AnyRecord) -> AnyRecord:
    """Read a record into `record`. A last line that was cut off is left out; other unreadable lines are `damaged`."""
    for number, line in enumerate(text.split("\n")[:-1], 1):
        try:
            values = json.loads(line)
            record.doing = None
            getattr(record, f"read_{values['step']}".replace("-", "_"))(values)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            record.damaged.append(number)
    return record


def progress(record: RankRecord) -> str:
    """What is being done now: "training step (31 of 120), 0.418 s each"; empty when it is not known or all is done."""
    doing, first = record.doing, record.first
    if doing is None or first is None:
        return ""
    steps, seconds = doing.number - first.number, doing.time - first.time
    return f"{doing}, {seconds / steps:.3g} s each" if steps > 0 and first.time and seconds > 0 else str(doing)


def unusable(record: RankRecord, program: str = "") -> Verdict | None:
    """Why nothing can be said by this record; None: it can be judged. `program`: whose record it has to be."""
    if record.version is None:
        return Verdict(None, ["no rank reported: the record of the ranks is empty"])
    if record.version == VERSION and record.program == program:
        return None
    found = f" of {record.program or 'an unknown program'}" if program else ""
    wanted = f" of {program}" if program else ""
    text = f"the record has version {record.version}{found}, this a4-agent reads version {VERSION}{wanted}"
    return Verdict(None, [f"{text}: agent and rank program are of different releases"])


def verdict(record: RankRecord, wrong: Sequence[str], incomplete: Sequence[str], stopped: str) -> Verdict:
    """What follows from what is `wrong`, from what is missing at an end (`incomplete`), and from `stopped`, how far
    a record without an end came."""
    found = [*wrong]
    if not found and record.finished is not None and not record.damaged:
        found = [*incomplete]
    if found:
        return Verdict(int(Exit.WRONG_RESULT), found)
    if record.damaged:
        return Verdict(None, [f"line {record.damaged[0]} of the record of the ranks cannot be read"])
    return Verdict(int(Exit.OK), []) if record.finished is not None else Verdict(None, [stopped])


def wrong_count(record: RankRecord, slots: int, pods: int) -> list[str]:
    """Empty when as many ranks ran as the plan has."""
    planned = slots * pods
    if record.launched == planned:
        return []
    return [f"{record.launched} ranks ran, the plan has {planned} ({slots} on each of {pods} pods)"]


def wrong_places(record: RankRecord, tokens: Sequence[str], slots: int, names: Sequence[str]) -> list[str]:
    """Ranks that are not where the plan puts them, a sentence each."""
    pods = {token: number for number, token in enumerate(tokens)}
    found = [_misplaced(seen, pods, slots, names) for seen in record.ranks or []]
    return [reason for reason in found if reason]


def unfinished(record: RankRecord, slots: int, names: Sequence[str]) -> list[str]:
    """Ranks that did not come to their end, a sentence each."""
    missing = sorted(set(range(record.launched)) - set(record.finished or []))
    return [f"{rank_on(rank, slots, names)} did not finish" for rank in missing]


def at_most(reasons: list[str], most: int = MOST) -> list[str]:
    """The first so many, then how many more there are."""
    rest = len(reasons) - most
    return [*reasons[:most], f"and {rest} more like these"] if rest > 0 else reasons


def rank_on(rank: int, slots: int, names: Sequence[str]) -> str:
    """A rank and its pod, which is named without the domain, as in all other lines: "rank 3 on pod job-0-1"."""
    return f"rank {rank} on pod {short(name_of(rank, slots, names))}"


def ranks_text(ranks: Sequence[int]) -> str:
    """rank 3, ranks 0-7, 9"""
    return ("rank " if len(set(ranks)) == 1 else "ranks ") + ranges(ranks).replace(",", ", ")


def name_of(rank: int, slots: int, names: Sequence[str]) -> str:
    """The pod that the plan puts a rank on."""
    return names[rank // slots] if 0 <= rank // slots < len(names) else "none"


def short(name: str) -> str:
    """A pod's name without the domain."""
    return name.split(".")[0]


def _misplaced(seen: RankSeen, pods: Mapping[str, int], slots: int, names: Sequence[str]) -> str:
    """Empty: it is where the plan puts it."""
    if seen.error or not seen.token:
        where = f"could not read the token of its pod on node {seen.node}: {seen.error or 'it is empty'}"
    elif seen.token not in pods:
        where = f"runs on node {seen.node} in no pod of the plan"
    elif pods[seen.token] == seen.rank // slots:
        return ""
    else:
        where = f"runs on pod {short(names[pods[seen.token]])}"
    return f"rank {seen.rank} {where}, the plan puts it on pod {short(name_of(seen.rank, slots, names))}"

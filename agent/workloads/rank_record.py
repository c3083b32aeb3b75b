"""The record that rank 0 of a rank program writes: reading it, and comparing it with the plan.

entrypoints/torch_ranks.py and entrypoints/connectivity.py describe the lines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

from agent import wire
from agent.decide.subset import ranges
from agent.errors import Exit

VERSION = 1


class PlannedRanks(NamedTuple):
    """Where the plan puts the ranks of a run: rank r on pod r // slots."""

    slots: int
    names: Sequence[str]
    """Names of the pods, in the order of the plan."""
    tokens: Sequence[str] = ()
    """Tokens of the pods, in the same order."""

    def pod(self, rank: int) -> str:
        """The name of a rank's pod."""
        return self.names[rank // self.slots] if 0 <= rank // self.slots < len(self.names) else "none"

    def short(self, rank: int) -> str:
        """The same without the domain."""
        return self.pod(rank).split(".")[0]

    def on(self, rank: int) -> str:
        """A rank and its pod, as in all other lines: "rank 3 on pod job-0-1"."""
        return f"rank {rank} on pod {self.short(rank)}"


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


class DoingLine(NamedTuple):
    """What was begun: `what` for people, the `number`th of so many."""

    what: str
    number: int
    of: int
    time: float = 0.0
    """Seconds since 1970; 0: not said."""

    def __str__(self) -> str:
        return f"{self.what} ({self.number} of {self.of})" if self.of > 1 else self.what


class RecordVerdict(NamedTuple):
    """`code` 0: all is right; 65: something is wrong; None: nothing is wrong as far as the record goes, but it
    ends early, so the caller must look for another cause (and end 65 when there is none)."""

    code: int | None
    reasons: list[str]


@dataclass
class RankRecord:
    """What the program wrote, as far as it came. None: that step was not reached.

    A line with "step": "left-out" is read by the method `read_left_out`: each program's record has those of its lines.
    They raise ValueError, KeyError, TypeError and AttributeError for a line that is not as it should be."""

    OF: ClassVar[str] = ""
    """The program whose record this is."""
    version: int | None = None
    program: str = ""
    """Empty: the record does not say."""
    launched: int = 0
    ranks: Sequence[RankSeen] | None = None
    doing: DoingLine | None = None
    """What was begun last, when nothing came after it."""
    first: DoingLine | None = None
    """The first in a row with the same words as `doing`."""
    finished: Sequence[int] | None = None
    phases: dict[str, float] = field(default_factory=dict)
    """Moments of the run for result.json, in seconds since 1970: `ranks-ready`, all ranks had found each other;
    `first-collective`, all had done the first collective that is under test."""
    damaged: list[int] = field(default_factory=list)
    """Numbers (from 1) of lines that could not be read; a last line without its end is none of them."""

    def read_ranks(self, values: Mapping[str, Any]) -> None:
        self.ranks = wire.from_json(tuple[RankSeen, ...], values["ranks"])
        self.note("ranks-ready", values)

    def read_doing(self, values: Mapping[str, Any]) -> None:
        self.doing = doing = wire.from_json(DoingLine, values)
        if self.first is None or (self.first.what, self.first.of) != (doing.what, doing.of):
            self.first = doing

    def read_end(self, values: Mapping[str, Any]) -> None:
        self.finished = wire.from_json(tuple[int, ...], values["finished"])

    def note(self, moment: str, values: Mapping[str, Any]) -> None:
        """This line is written at that moment, if it is the first of its kind and says when."""
        if "time" in values:
            self.phases.setdefault(moment, float(values["time"]))

    def wrong(self, planned: PlannedRanks) -> list[str]:
        """What is wrong, however far the record goes, a sentence each."""
        return []

    def incomplete(self, planned: PlannedRanks) -> list[str]:
        """What a record with an end does not have, a sentence each."""
        return []

    def stopped(self) -> str:
        """How far a record without an end came."""
        return ""

    def mapping(self, planned: PlannedRanks, *more: str) -> list[dict[str, Any]]:
        """Where each rank ran and what `more` it said of itself, for result.json."""
        return [
            {"rank": seen.rank, "planned_pod": planned.pod(seen.rank)}
            | {name: getattr(seen, name) for name in ("node", *more)}
            for seen in self.ranks or []
        ]

    def judge(self, planned: PlannedRanks) -> RecordVerdict:
        """What follows from the record, compared with the plan."""
        if self.version is None:
            return RecordVerdict(None, ["no rank reported: the record of the ranks is empty"])
        if (self.version, self.program) != (VERSION, self.OF):
            found = f" of {self.program or 'an unknown program'}" if self.OF else ""
            wanted = f" of {self.OF}" if self.OF else ""
            text = f"the record has version {self.version}{found}, this a4-agent reads version {VERSION}{wanted}"
            return RecordVerdict(None, [f"{text}: agent and rank program are of different releases"])
        wrong = self.wrong(planned)
        if not wrong and self.finished is not None and not self.damaged:
            wrong = self.incomplete(planned)
        if wrong:
            return RecordVerdict(int(Exit.WRONG_RESULT), wrong)
        if self.damaged:
            return RecordVerdict(None, [f"line {self.damaged[0]} of the record of the ranks cannot be read"])
        return RecordVerdict(int(Exit.OK), []) if self.finished is not None else RecordVerdict(None, [self.stopped()])

    def miscounted(self, planned: PlannedRanks) -> list[str]:
        """Empty when as many ranks ran as the plan has."""
        slots, pods = planned.slots, len(planned.names)
        if self.launched == slots * pods:
            return []
        return [f"{self.launched} ranks ran, the plan has {slots * pods} ({slots} on each of {pods} pods)"]

    def misplaced(self, planned: PlannedRanks) -> list[str]:
        """Ranks that are not where the plan puts them, a sentence each."""
        pods = {token: number for number, token in enumerate(planned.tokens)}
        found = []
        for seen in self.ranks or []:
            if seen.error or not seen.token:
                where = f"could not read the token of its pod on node {seen.node}: {seen.error or 'it is empty'}"
            elif seen.token not in pods:
                where = f"runs on node {seen.node} in no pod of the plan"
            elif pods[seen.token] != seen.rank // planned.slots:
                where = f"runs on pod {planned.names[pods[seen.token]].split('.')[0]}"
            else:
                continue
            found.append(f"rank {seen.rank} {where}, the plan puts it on pod {planned.short(seen.rank)}")
        return found

    def unfinished(self, planned: PlannedRanks) -> list[str]:
        """Ranks that did not come to their end, a sentence each."""
        missing = sorted(set(range(self.launched)) - set(self.finished or []))
        return [f"{planned.on(rank)} did not finish" for rank in missing]

    def progress(self) -> str:
        """What is being done now: "training step (31 of 120), 0.418 s each"; empty when it is not known or all is
        done."""
        doing, first = self.doing, self.first
        if doing is None or first is None:
            return ""
        steps, seconds = doing.number - first.number, doing.time - first.time
        return f"{doing}, {seconds / steps:.3g} s each" if steps > 0 and first.time and seconds > 0 else str(doing)


AnyRecord = TypeVar("AnyRecord", bound=RankRecord)


def read_record(text: str, record: AnyRecord) -> AnyRecord:
    """Read a record into `record`. A last line that was cut off is left out; other unreadable lines are `damaged`."""
    for number, line in enumerate(text.split("\n")[:-1], 1):
        try:
            values = json.loads(line)
            record.doing = None
            getattr(record, f"read_{values['step']}".replace("-", "_"))(values)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            record.damaged.append(number)
    return record


def ranks_text(ranks: Sequence[int]) -> str:
    """rank 3, ranks 0-7, 9"""
    return ("rank " if len(set(ranks)) == 1 else "ranks ") + ranges(ranks).replace(",", ", ")

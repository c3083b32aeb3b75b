"""The record that rank 0 of a rank program writes: reading it, and comparing it with the plan.

entrypoints/torch_ranks.py and entrypoints/connectivity.py describe the lines. `slots` are the ranks of each pod,
`names` and `tokens` those of the pods in the order of the plan: the plan puts rank r on pod r // slots.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agent.decide.subset import ranges
from agent.errors import Exit

VERSION = 1
MOST = 8
"""Findings of one kind that are named one by one."""


@dataclass(frozen=True)
class RankSeen:
    """What one rank said of itself."""

    rank: int
    token: str
    """The token of the pod it runs on; empty when it could not be read, then `error` says why."""
    pid: int
    node: str
    error: str = ""
    library: str = ""
    """Version of the libmpi that it uses, "4.1.4"; empty for a rank of torch."""
    local_rank: int | None = None
    """Told by ranks of torch alone, as is `device`."""
    device: str = ""
    """"cpu", or the GPU's name."""


@dataclass(frozen=True)
class Doing:
    """What was begun: `what` for people, the `number`th of so many."""

    what: str
    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.what} ({self.number} of {self.of})" if self.of > 1 else self.what


@dataclass
class RankRecord:
    """What the program wrote, as far as it came. None: that step was not reached."""

    version: int | None = None
    program: str = ""
    """Empty: the record does not say."""
    launched: int = 0
    ranks: list[RankSeen] | None = None
    doing: Doing | None = None
    """What was begun last, when nothing came after it."""
    finished: list[int] | None = None
    damaged: list[int] = field(default_factory=list)
    """Numbers (from 1) of lines that could not be read; a last line without its end is none of them."""


@dataclass(frozen=True)
class Verdict:
    """`code` 0: all is right; 65: something is wrong; None: nothing is wrong as far as the record goes, but it
    ends early, so the caller must look for another cause (and end 65 when there is none)."""

    code: int | None
    reasons: list[str]


AnyRecord = TypeVar("AnyRecord", bound=RankRecord)
Reader = Callable[[Any, dict[str, Any]], None]


def parse_lines(text: str, record: AnyRecord, readers: Mapping[str, Reader]) -> AnyRecord:
    """Read a record into `record`; `readers`: the program's own steps. A last line that was cut off is left out."""
    known = {**_READERS, **readers}
    for number, line in enumerate(text.split("\n")[:-1], 1):
        try:
            values = json.loads(line)
            read = known[values["step"]]
            record.doing = None
            read(record, values)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            record.damaged.append(number)
    return record


def progress(record: RankRecord) -> str:
    """What is being done now: "all_reduce, 1 GiB (31 of 120)"; empty when it is not known or all is done."""
    return str(record.doing) if record.doing else ""


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


def read_seen(values: Mapping[str, Any], *needed: str) -> RankSeen:
    """What a rank said of itself, from one object of the line "ranks"; `needed`: what its program tells as well.

    Raises KeyError, TypeError and ValueError."""
    if missing := [name for name in needed if name not in values]:
        raise KeyError(missing[0])
    local_rank = values.get("local_rank")
    return RankSeen(
        rank=int(values["rank"]),
        token=str(values["token"]),
        pid=int(values["pid"]),
        node=str(values["node"]),
        error=str(values.get("error", "")),
        library=str(values.get("library", "")),
        local_rank=None if local_rank is None else int(local_rank),
        device=str(values.get("device", "")),
    )


def _read_doing(record: RankRecord, values: dict[str, Any]) -> None:
    record.doing = Doing(str(values["what"]), int(values["number"]), int(values["of"]))


def _read_end(record: RankRecord, values: dict[str, Any]) -> None:
    record.finished = [int(rank) for rank in values["finished"]]


_READERS: dict[str, Reader] = {"doing": _read_doing, "end": _read_end}

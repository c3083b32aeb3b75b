"""What the records of the rank programs `ddp` and `collectives` have in common (their schema: entrypoints/ddp.py)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agent.decide.subset import ranges
from agent.errors import Exit
from agent.workloads.connectivity.record import Verdict

VERSION = 1
MOST = 8
"""Findings of one kind that are named one by one."""


@dataclass(frozen=True)
class RankSeen:
    """What one rank said of itself."""

    rank: int
    local_rank: int
    token: str
    """The token of the pod it runs on; empty when it could not be read, then `error` says why."""
    node: str
    pid: int
    device: str
    """"cpu", or the GPU's name."""
    error: str = ""


@dataclass(frozen=True)
class Doing:
    """What was begun: `what` for people, the `number`th of so many."""

    what: str
    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.what} ({self.number} of {self.of})" if self.of > 1 else self.what


@dataclass
class TorchRecord:
    """What the program wrote, as far as it came. None: that step was not reached."""

    version: int | None = None
    program: str = ""
    launched: int = 0
    backend: str = ""
    started: float | None = None
    """Seconds since 1970, as is `ready`."""
    versions: dict[str, str] = field(default_factory=dict)
    """Name → version, for result.json: python, torch, cuda, nccl."""
    ranks: list[RankSeen] | None = None
    ready: float | None = None
    """When all ranks had found each other, "ranks-ready" in result.json."""
    doing: Doing | None = None
    """What was begun last, when nothing came after it."""
    finished: list[int] | None = None
    damaged: list[int] = field(default_factory=list)
    """Numbers (from 1) of lines that could not be read; a last line without its end is none of them."""


AnyRecord = TypeVar("AnyRecord", bound=TorchRecord)
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


def parse_record(text: str) -> TorchRecord:
    """The common part of either program's record."""
    own = ("sum", "parameters", "reference", "measured", "sweep", "wrong", "left-out")
    return parse_lines(text, TorchRecord(), dict.fromkeys(own, lambda record, values: None))


def progress(record: TorchRecord) -> str:
    """What is being done now: "all_reduce, 1 GiB (31 of 120)"; empty when it is not known or all is done."""
    return str(record.doing) if record.doing else ""


def phases(record: TorchRecord) -> dict[str, float]:
    """Moments of the run for result.json."""
    return {} if record.ready is None else {"ranks-ready": record.ready}


def as_json(record: TorchRecord, names: Sequence[str], slots: int) -> dict[str, Any]:
    """The common part for `record` in result.json. Tokens are left out."""
    return {
        "program": record.program,
        "ranks": record.launched,
        "backend": record.backend,
        "mapping": [
            {"rank": seen.rank, "planned_pod": name_of(seen.rank, slots, names), "node": seen.node}
            | {"device": seen.device}
            for seen in record.ranks or []
        ],
        "finished": record.finished,
        "doing": progress(record),
    }


def unusable(record: TorchRecord, program: str) -> Verdict | None:
    """Why nothing can be said by this record; None: it can be judged."""
    if record.version is None:
        return Verdict(None, ["no rank reported: the record of the ranks is empty"])
    if record.version == VERSION and record.program == program:
        return None
    text = f"the record has version {record.version} of {record.program or 'an unknown program'}"
    text += f", this a4-agent reads version {VERSION} of {program}"
    return Verdict(None, [f"{text}: agent and rank program are of different releases"])


def verdict(record: TorchRecord, wrong: Sequence[str], incomplete: Sequence[str], stopped: str) -> Verdict:
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


def wrong_places(record: TorchRecord, tokens: Sequence[str], slots: int, names: Sequence[str]) -> list[str]:
    """Ranks that are too many, too few, or not where the plan puts them: rank r on pod r // slots."""
    planned = slots * len(tokens)
    if record.launched != planned:
        return [f"{record.launched} ranks ran, the plan has {planned} ({slots} on each of {len(tokens)} pods)"]
    pods = {token: number for number, token in enumerate(tokens)}
    found = [_misplaced(seen, pods, slots, names) for seen in record.ranks or []]
    return at_most([reason for reason in found if reason])


def unfinished(record: TorchRecord, slots: int, names: Sequence[str]) -> list[str]:
    missing = sorted(set(range(record.launched)) - set(record.finished or []))
    return at_most([f"{rank_on(rank, slots, names)} did not finish" for rank in missing])


def stopped(record: TorchRecord) -> str:
    """How far a record without an end came."""
    if record.ranks is None:
        return f"{record.launched} ranks were started, but not all of them found each other"
    return f"the ranks stopped during: {record.doing}" if record.doing else "the ranks stopped before their end"


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


def _read_start(record: TorchRecord, values: dict[str, Any]) -> None:
    record.version, record.program = int(values["version"]), str(values.get("program", ""))
    if record.version == VERSION:
        record.launched, record.backend = int(values["ranks"]), str(values["backend"])
        record.started = float(values["time"])
        record.versions = {str(name): str(version) for name, version in values["versions"].items()}


def _read_ranks(record: TorchRecord, values: dict[str, Any]) -> None:
    record.ranks = [
        RankSeen(
            rank=int(seen["rank"]),
            local_rank=int(seen["local_rank"]),
            token=str(seen["token"]),
            node=str(seen["node"]),
            pid=int(seen["pid"]),
            device=str(seen["device"]),
            error=str(seen.get("error", "")),
        )
        for seen in values["ranks"]
    ]
    record.ready = float(values["time"])


def _read_doing(record: TorchRecord, values: dict[str, Any]) -> None:
    record.doing = Doing(str(values["what"]), int(values["number"]), int(values["of"]))


def _read_end(record: TorchRecord, values: dict[str, Any]) -> None:
    record.finished = [int(rank) for rank in values["finished"]]


_READERS: dict[str, Reader] = {
    "start": _read_start,
    "ranks": _read_ranks,
    "doing": _read_doing,
    "end": _read_end,
}

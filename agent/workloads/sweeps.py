"""Bandwidth over message size, as nccl-tests defines and prints it; `told` gives what result.json has of it."""

from __future__ import annotations

from dataclasses import dataclass

from agent.decide import result
from agent.decide.result import Measured as Measured


@dataclass(frozen=True)
class Row:
    """One size. A placement is None when it was not measured, or when its figures are no numbers (size 0)."""

    size: int
    """Bytes."""
    count: int
    type: str
    redop: str
    """"none" where the collective has none, and in the tables of old releases that do not say."""
    root: int
    out_of_place: Measured | None
    in_place: Measured | None

    def placements(self) -> tuple[Measured, ...]:
        """Those that were measured."""
        return tuple(found for found in (self.out_of_place, self.in_place) if found)


@dataclass(frozen=True)
class Sweep:
    """One table. All of its rows have the same type, operation and root."""

    collective: str
    """As nccl-tests names it, "all_reduce"; empty when the text does not say."""
    ranks: int
    """Ranks of the communicator, from the lines of devices; 0 when there are none."""
    iterations: int | None
    warmup: int | None
    rows: tuple[Row, ...]
    """Empty when the text ends before the first."""
    average_busbw: float | None
    out_of_bounds: int | None
    backend: str = "nccl"
    groups: int = 1
    """Communicators of `ranks` ranks each, side by side (NCCL_TESTS_SPLIT)."""
    copies: int = 1
    """Processes that call themselves rank 0 in this table. A build without MPI makes every process a world of its
    own: then this is more than 1, or there are many sweeps, and `ranks` is 1 (or the GPUs of one process)."""

    def told(self, baseline: result.Baseline | None = None) -> result.Sweep:
        """One of the `sweeps` of result.json, beside the baseline of its sizes."""
        first = self.rows[0] if self.rows else Row(0, 0, "", "none", -1, None, None)
        return result.Sweep(
            collective=self.collective,
            ranks=self.ranks,
            backend=self.backend,
            type=first.type,
            redop=first.redop,
            root=first.root,
            iterations=self.iterations,
            warmup=self.warmup,
            rows=tuple(result.Row(row.size, row.count, row.out_of_place, row.in_place) for row in self.rows),
            average_busbw=self.average_busbw,
            out_of_bounds=self.out_of_bounds,
            baseline=baseline,
        )


def busbw_factor(collective: str, ranks: int) -> float:
    """busbw / algbw as nccl-tests defines it. ValueError for a name that it does not have, and below one rank."""
    if ranks < 1:
        raise ValueError(f"{ranks} ranks")
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if collective in {"all_gather", "reduce_scatter", "alltoall", "alltoallv", "gather", "scatter"}:
        return (ranks - 1) / ranks
    if collective in {"broadcast", "reduce", "sendrecv", "hypercube"}:
        return 1.0
    raise ValueError(f"nccl-tests has no collective {collective!r}")

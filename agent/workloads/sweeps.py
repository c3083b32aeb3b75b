"""Bandwidth over message size, as nccl-tests defines it: the `sweeps` of result.json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Measured:
    """One placement of one size."""

    time: float
    """µs per operation."""
    algbw: float
    """GB/s, 1 GB = 1e9 bytes, as is busbw."""
    busbw: float
    wrong: int | None
    """Wrong elements; None: not checked, or not counted (releases before 2.13 give the largest difference)."""


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

    def to_json(self) -> dict[str, Any]:
        """One object of `sweeps` in docs/result.schema.json, without a baseline."""
        first = self.rows[0] if self.rows else Row(0, 0, "", "none", -1, None, None)
        return {
            "collective": self.collective,
            "ranks": self.ranks,
            "backend": self.backend,
            "type": first.type,
            "redop": first.redop,
            "root": first.root,
            "iterations": self.iterations,
            "warmup": self.warmup,
            "rows": [row_to_json(row) for row in self.rows],
            "average_busbw": self.average_busbw,
            "out_of_bounds": self.out_of_bounds,
            "baseline": None,
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Sweep:
        """The sweep of an object that the schema allows; what is not in it, groups and copies, is 1."""
        kind = (data["type"], data["redop"], data["root"])
        return Sweep(
            collective=data["collective"],
            ranks=data["ranks"],
            iterations=data["iterations"],
            warmup=data["warmup"],
            rows=tuple(row_from_json(row, *kind) for row in data["rows"]),
            average_busbw=data["average_busbw"],
            out_of_bounds=data["out_of_bounds"],
            backend=data["backend"],
        )


def row_to_json(row: Row) -> dict[str, Any]:
    return {
        "size": row.size,
        "count": row.count,
        "out_of_place": vars(row.out_of_place) if row.out_of_place else None,
        "in_place": vars(row.in_place) if row.in_place else None,
    }


def row_from_json(data: dict[str, Any], type_: str, redop: str, root: int) -> Row:
    groups = (data["out_of_place"], data["in_place"])
    out, inside = (Measured(**group) if group else None for group in groups)
    return Row(data["size"], data["count"], type_, redop, root, out, inside)


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

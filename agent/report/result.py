"""What result.json says of one run (docs/result.schema.json), as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    status: str
    code: int
    what: str
    where: str
    why: str
    origin: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Pod:
    index: int
    name: str
    node: str
    address: str
    place: tuple[str, ...]
    status: int | None
    lost: str
    phases: Mapping[str, float]
    inventory: Mapping[str, str]


@dataclass(frozen=True)
class Difference:
    what: str
    usual: str
    odd: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Started:
    """What was started on the lead."""

    argv: tuple[str, ...]
    cwd: str
    environment: Mapping[str, str]
    added: frozenset[str]


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    columns: tuple[tuple[str, str], ...]
    """(name, unit)"""
    rows: tuple[tuple[str | float | bool | None, ...], ...]


@dataclass(frozen=True)
class Measured:
    """µs, GB/s, GB/s, elements (None: not checked)."""

    time: float
    algbw: float
    busbw: float
    wrong: int | None


@dataclass(frozen=True)
class Row:
    size: int
    count: int
    out_of_place: Measured | None
    in_place: Measured | None

    @property
    def wrong(self) -> int:
        """Wrong elements of both placements."""
        return sum(one.wrong or 0 for one in (self.out_of_place, self.in_place) if one)


@dataclass(frozen=True)
class Baseline:
    name: str
    source: str
    busbw: Mapping[int, float]
    """Size in bytes → GB/s."""


@dataclass(frozen=True)
class Sweep:
    collective: str
    ranks: int
    backend: str
    type: str
    redop: str
    iterations: int | None
    warmup: int | None
    rows: tuple[Row, ...]
    average_busbw: float | None
    out_of_bounds: int | None
    baseline: Baseline | None


@dataclass(frozen=True)
class Result:
    agent: str
    job: str
    epoch: str
    run: str
    workload: str
    args: tuple[str, ...]
    by: str
    since: float
    until: float
    verdict: Verdict
    slots: int
    source: str
    """Where the order came from; empty: the indices."""
    warnings: tuple[str, ...]
    pods: tuple[Pod, ...]
    differences: tuple[Difference, ...]
    launch: Started | None
    versions: Mapping[str, str]
    timeout: float
    stall: float
    tables: tuple[Table, ...]
    sweeps: tuple[Sweep, ...]
    profile: tuple[str, str] | None
    """(name, why)"""
    gate: tuple[str, str] | None
    """(status, reason)"""

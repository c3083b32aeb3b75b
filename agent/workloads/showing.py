"""What a workload has to say of one of its results, for pages: which numbers are compared over many runs, what was
measured between two, and how fast each node was.

It is read from the result and not stored in it: results of earlier versions have it as well, and it can be improved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple


class Figure(NamedTuple):
    """A number that stands for a run. It is compared with those of runs where all but the value is the same."""

    name: str
    """all_reduce, 8 GiB"""
    unit: str
    value: float | None
    """None: it was not measured."""
    details: Sequence[str] = ()
    """What else makes it another measurement: type, backend, batch, …"""
    lower: bool = False
    """Less is better."""
    wrong: bool = False
    """What was computed meanwhile is wrong."""


class PairMap(NamedTuple):
    """What was measured between two."""

    name: str
    """bandwidth between neighbours"""
    unit: str
    pairs: Sequence[tuple[int, int, float]]
    """(first, second, value)"""
    of: Literal["rank", "pod"] = "rank"
    """Whether they are ranks or completion indices."""
    lower: bool = False
    """Less is better."""


class NodeShares(NamedTuple):
    """How fast each node was."""

    shares: Mapping[str, float]
    """Node → per cent of what is usual."""
    low: float
    """Less than this is slow."""
    about: str
    """How it was measured: a sentence without its point."""
    cleared: frozenset[str] = frozenset()
    """Nodes that the run found well all the same."""


class Showing(NamedTuple):
    """All of that; most workloads have nothing besides what every result has."""

    figures: Sequence[Figure] = ()
    """The most telling first."""
    maps: Sequence[PairMap] = ()
    nodes: NodeShares | None = None

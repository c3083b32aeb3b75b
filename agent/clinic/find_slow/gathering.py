"""Which pods gather at once, when all pairs are measured: all of them, then without the slow, or in halves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agent.clinic.find_slow.matching import area
from agent.clinic.find_slow.verdict import PairVerdict
from agent.decide.location import Place

HALVES = ((0, 1), (0, 2), (0, 3))
"""Quarters that are the first half."""


class Gathered(NamedTuple):
    """An all_gather over some nodes."""

    nodes: tuple[int, ...]
    speed: float
    """GB/s, as nccl-tests' busbw; 0: it did not come to its end"""


def next_groups(places: Sequence[Place], verdict: PairVerdict, gathered: Sequence[Gathered]) -> list[list[int]]:
    """Disjoint groups that gather at the same time now; none: that was all."""
    slow = {one.node for one in verdict.slow}
    hanging = {one.node for one in verdict.slow if not one.share}
    every = [node for node in range(len(places)) if node not in hanging]
    good = [node for node in every if node not in slow]
    if not gathered:
        return [every] if len(every) > 1 and not verdict.dead else []
    if slow:
        return [good] if len(gathered) == 1 and 1 < len(good) < len(every) else []
    failed = smallest_failed(gathered)
    return _narrower(places, failed, gathered) if failed else []


def smallest_failed(gathered: Sequence[Gathered]) -> Gathered | None:
    return min((one for one in gathered if not one.speed), key=lambda one: len(one.nodes), default=None)


def _narrower(places: Sequence[Place], failed: Gathered, gathered: Sequence[Gathered]) -> list[list[int]]:
    """The smallest group that failed, in halves by place; where both pass, halves across them, in two ways: any two of
    the quarters have been together then."""
    nodes = sorted(failed.nodes, key=lambda node: (area(places[node]), node))
    quarter = [nodes[at * len(nodes) // 4 : (at + 1) * len(nodes) // 4] for at in range(4)]
    tried = {frozenset(one.nodes) for one in gathered}
    for first in HALVES:
        halves: list[list[int]] = [[], []]
        for at, part in enumerate(quarter):
            halves[at not in first] += part
        fresh = [half for half in halves if len(half) > 1 and frozenset(half) not in tried]
        if fresh:
            return fresh
    return []

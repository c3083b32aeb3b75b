"""What the speeds of pairs say of nodes.

A pair is as fast as the slower of its two ends. So one good pair clears both, and a node is to blame only if all its
pairs are low, several of them with nodes that others clear. What is low between two cleared nodes is the way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import exp
from statistics import median
from typing import NamedTuple

from agent.decide.location import Place
from agent.workloads.find_slow.fitting import PairFit, PairSpeed, fit
from agent.workloads.find_slow.matching import Pair, area, confirming_rounds, first_rounds

LEAST_LOW = 3
"""So many low pairs with cleared nodes blame a node, and so many low measurements a link."""
LEAST_TIMEOUTS = 2
"""As many, where all were time-outs."""
FABRIC_SHARE = 0.2
EXCLUDED_SHARE = 0.2


class SlowNode(NamedTuple):
    """A node that is slow or hangs."""

    node: int
    share: float
    """of the usual speed; 0: it hangs"""
    pairs: int
    """with cleared nodes, all of them low"""


class SlowWays(NamedTuple):
    """What is low between cleared nodes."""

    links: Sequence[Pair] = ()
    """Low each time."""
    borders: Sequence[Place] = ()
    """Places that are slow to reach from outside."""
    fabric: bool = False
    """Many pairs are low, and no border is common to them."""
    once: int = 0
    """How many were low and are none of these."""


class PairVerdict(NamedTuple):
    """Each node is slow, cleared or unclear."""

    slow: Sequence[SlowNode]
    unclear: Sequence[int]
    cleared: frozenset[int]
    ways: SlowWays
    dead: bool
    """Nothing came through anywhere."""
    seen: float
    """The loss of speed, as a share, from which on a node is found."""

    @property
    def excludable(self) -> bool:
        """Whether these are few enough to go on without them."""
        nodes = len(self.slow) + len(self.unclear) + len(self.cleared)
        return len(self.slow) <= max(1, int(EXCLUDED_SHARE * nodes))


def next_rounds(places: Sequence[Place], measured: Sequence[PairSpeed]) -> list[list[Pair]]:
    """What is to be measured now: first everybody, then once more what is in doubt. Empty: that was all."""
    first = first_rounds(places)
    if not measured:
        return first
    if any(one.round >= len(first) for one in measured) or len(places) < LEAST_LOW:
        return []
    found, low = judge(places, measured), _low_pairs(measured, fit(places, measured))
    decided = {one.node for one in found.slow if not one.share}
    last = {node: one.speed for one in measured for node in one.pair}
    good = {node for node in found.cleared if last[node]}
    suspects = [node for node in range(len(places)) if node not in good and node not in decided]
    again = [pair for pair in low if good.issuperset(pair)]
    return confirming_rounds(places, first, suspects, good, again) if suspects or again else []


def judge(places: Sequence[Place], measured: Sequence[PairSpeed]) -> PairVerdict:
    fitted = fit(places, measured)
    losses = [(one.pair, loss) for one, loss in zip(measured, fitted.losses, strict=True) if loss is not None]
    hanging = _hanging(measured)
    cleared = fitted.cleared(measured) - hanging.keys()
    lows: dict[int, list[float]] = {}
    for pair, loss in losses:
        for node, partner in (pair, pair[::-1]):
            if node not in cleared and partner in cleared:
                lows.setdefault(node, []).append(loss)
    slow = [SlowNode(node, exp(median(low)), len(low)) for node, low in lows.items() if len(low) >= LEAST_LOW]
    slow = [one for one in slow if one.node not in hanging]
    slow = sorted([*slow, *(SlowNode(node, 0.0, count) for node, count in hanging.items())])
    known = cleared.union(one.node for one in slow)
    unclear = [node for node in range(len(places)) if node not in known]
    ways = _slow_ways(places, _low_pairs(measured, fitted), measured, cleared)
    return PairVerdict(
        slow, unclear, frozenset(cleared), ways, not any(one.speed for one in measured), 1 - exp(fitted.cut)
    )


def _hanging(measured: Sequence[PairSpeed]) -> dict[int, int]:
    """Nodes from which nothing came any more → how many partners waited in vain. Who has let most wait is first, and
    explains why they had nothing."""
    last: dict[int, int] = {}
    for one in measured:
        if one.speed:
            last.update(dict.fromkeys(one.pair, one.round))
    unexplained, found = [one for one in measured if not one.speed], dict[int, int]()
    while True:
        waited: dict[int, list[int]] = {}
        for one in unexplained:
            for node, partner in (one.pair, one.pair[::-1]):
                if last.get(node, -1) < one.round and partner in last:
                    waited.setdefault(node, []).append(partner)
        silent = [node for node, partners in waited.items() if len(set(partners)) >= LEAST_TIMEOUTS]
        if not silent:
            return found
        worst = max(silent, key=lambda node: (len(waited[node]), -last.get(node, -1)))
        found[worst] = len(set(waited[worst]))
        unexplained = [one for one in unexplained if worst not in one.pair]


def _low_pairs(measured: Sequence[PairSpeed], fitted: PairFit) -> dict[Pair, list[bool]]:
    """Pairs that were low at least once, and whether they were each time."""
    found: dict[Pair, list[bool]] = {}
    for one, loss in zip(measured, fitted.losses, strict=True):
        if loss is not None:
            found.setdefault(one.pair, []).append(loss < fitted.cut)
    return {pair: times for pair, times in found.items() if any(times)}


def _slow_ways(
    places: Sequence[Place],
    lows: Mapping[Pair, Sequence[bool]],
    measured: Sequence[PairSpeed],
    cleared: Collection[int],
) -> SlowWays:
    pairs = {one.pair for one in measured if one.pair[0] in cleared and one.pair[1] in cleared}
    low = {pair: times for pair, times in lows.items() if pair in pairs}
    always = {pair for pair, times in low.items() if all(times)}
    borders = _slow_borders(places, pairs, always)
    rest = [pair for pair in always if not any(_crosses(places, pair, place) for place in borders)]
    fabric = len(rest) >= LEAST_LOW and len(rest) > FABRIC_SHARE * len(pairs)
    links = [] if fabric else sorted(pair for pair in rest if len(low[pair]) >= LEAST_LOW)
    explained = len(always) - len(rest) + (len(rest) if fabric else len(links))
    return SlowWays(links, borders, fabric, len(low) - explained)


def _slow_borders(places: Sequence[Place], pairs: Collection[Pair], low: set[Pair]) -> list[Place]:
    """The widest places of which all pairs with others are low, from several of their nodes."""
    found: list[Place] = []
    areas = {area(place)[:depth] for place in places for depth in range(1, len(place) + 1)}
    for place in sorted(areas, key=lambda one: (len(one), one)):
        crossing = [pair for pair in pairs if _crosses(places, pair, place)]
        inside = {node for pair in crossing for node in pair if _is_in(places[node], place)}
        slow = len(crossing) >= LEAST_LOW and len(inside) > 1 and low.issuperset(crossing)
        if slow and not any(_is_in(place, wider) for wider in found):
            found.append(place)
    return found


def _is_in(place: Place, wider: Place) -> bool:
    return place[: len(wider)] == wider


def _crosses(places: Sequence[Place], pair: Pair, place: Place) -> bool:
    return _is_in(places[pair[0]], place) != _is_in(places[pair[1]], place)

"""What the speeds of pairs say of nodes.

A pair is as fast as the slower of its two ends. So one good pair clears both, and a node is to blame only if all its
pairs are low, several of them with nodes that others clear. What is low between two cleared nodes is the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import exp
from statistics import median
from typing import NamedTuple

from agent.clinic.find_slow.fitting import LEAST_LOSS, LEAST_LOW, MOST_LOW, PairFit, PairSpeed, fit
from agent.clinic.find_slow.matching import (
    FEW,
    FIRST_PART,
    Pair,
    area,
    confirming_rounds,
    first_round_count,
    first_rounds,
)
from agent.decide.location import Place

LEAST_TIMEOUTS = 2
"""As many, where all were time-outs."""
FABRIC_SHARE = 0.2
LEAST_RAILS = 3
"""With fewer rails, none of them is compared with the others."""


class SlowNode(NamedTuple):
    """A node that is slow or hangs, or some of its rails."""

    node: int
    share: float
    """of the usual speed; 0: it hangs"""
    pairs: int
    """with cleared nodes, all of them low"""
    rails: tuple[int, ...] = ()
    """those that are slow; empty: all of them"""
    alone: bool = False
    """All its pairs are further apart than those of others: it may be the way to it."""


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
    low: Collection[Pair] = ()
    """All that were low at least once."""
    rails: tuple[int, ...] = ()
    """Where this was seen; empty: on all of them."""
    slow_rails: tuple[int, ...] = ()
    """Rails that are slow everywhere, against the others."""


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
    shares: Mapping[int, float] = {}
    """Node → what share of the usual speed it has with cleared nodes, on its slowest rail."""


def next_rounds(places: Sequence[Place], measured: Sequence[PairSpeed]) -> list[list[Pair]]:
    """What is to be measured now: first everybody, in two parts, the second without those that hang; then once more
    what is in doubt. Empty: that was all."""
    first = first_rounds(places)
    begin = len(first) if len(places) <= FEW else FIRST_PART
    if not measured:
        return first[:begin]
    done = max(one.round for one in measured) + 1
    if done > len(first) or len(places) < LEAST_LOW or not any(one.speed for one in measured):
        return []
    if done == begin and begin < len(first):
        hanging = _hanging(measured)
        return [[pair for pair in one if hanging.keys().isdisjoint(pair)] for one in first[begin:]]
    found = judge(places, measured)
    decided = {one.node for one in found.slow if not one.share and not one.rails}
    last: dict[int, tuple[int, float]] = {}
    for one in measured:
        last.update({node: max(last.get(node, (0, 0.0)), (one.round, one.speed)) for node in one.pair})
    good = {node for node in found.cleared if last[node][1]}
    suspects = [node for node in range(len(places)) if node not in good and node not in decided]
    again = [pair for pair in found.ways.low if good.issuperset(pair)]
    return confirming_rounds(places, first, suspects, good, again) if suspects or again else []


def judge(places: Sequence[Place], measured: Sequence[PairSpeed]) -> PairVerdict:
    """Each rail by itself, then what they have in common."""
    rails = sorted({one.rail for one in measured}) or [0]
    found = {rail: _judge_rail(places, [one for one in measured if one.rail == rail]) for rail in rails}
    if len(found) == 1:
        return found[rails[0]]
    on_rails: dict[int, dict[int, SlowNode]] = {}
    for rail, verdict in found.items():
        for slow in verdict.slow:
            on_rails.setdefault(slow.node, {})[rail] = slow
    cleared = frozenset[int].intersection(*(one.cleared for one in found.values()))
    return PairVerdict(
        slow=[_on_rails(slow, len(rails)) for _, slow in sorted(on_rails.items())],
        unclear=[node for node in range(len(places)) if node not in cleared and node not in on_rails],
        cleared=cleared,
        ways=_ways_of_rails({rail: one.ways for rail, one in found.items()}, _slow_rails(measured)),
        dead=all(one.dead for one in found.values()),
        seen=max(one.seen for one in found.values()),
        shares=_least([one.shares for one in found.values()]),
    )


def _least(rails: Sequence[Mapping[int, float]]) -> dict[int, float]:
    nodes = {node for one in rails for node in one}
    return {node: min(one[node] for one in rails if node in one) for node in nodes}


def _on_rails(slow: Mapping[int, SlowNode], rails: int) -> SlowNode:
    every = [*slow.values()]
    return SlowNode(
        every[0].node,
        median(one.share for one in every),
        min(one.pairs for one in every),
        tuple(slow) if len(slow) < rails else (),
        all(one.alone for one in every),
    )


def _ways_of_rails(ways: Mapping[int, SlowWays], slow_rails: tuple[int, ...]) -> SlowWays:
    seen = tuple(rail for rail, one in ways.items() if one.links or one.borders or one.fabric)
    return SlowWays(
        links=sorted({pair for one in ways.values() for pair in one.links}),
        borders=sorted({place for one in ways.values() for place in one.borders}),
        fabric=any(one.fabric for one in ways.values()),
        once=sum(one.once for one in ways.values()),
        low={pair for one in ways.values() for pair in one.low},
        rails=seen if len(seen) < len(ways) else (),
        slow_rails=slow_rails,
    )


def _slow_rails(measured: Sequence[PairSpeed]) -> tuple[int, ...]:
    """The same pairs were measured on all rails at the same time."""
    speeds: dict[int, list[float]] = {}
    for one in measured:
        speeds.setdefault(one.rail, []).append(one.speed)
    levels = {rail: median(found) for rail, found in speeds.items()}
    usual = median(levels.values()) if len(levels) >= LEAST_RAILS else 0.0
    return tuple(rail for rail, level in levels.items() if level < (1 - LEAST_LOSS) * usual)


def _judge_rail(places: Sequence[Place], measured: Sequence[PairSpeed]) -> PairVerdict:
    fitted = fit(places, measured)
    hanging = _hanging(measured)
    cleared = fitted.cleared(measured) - hanging.keys()
    confirming = first_round_count(len(places))
    against: dict[int, list[float]] = {}
    lows: dict[int, list[float]] = {}
    partners: dict[int, list[int]] = {}
    confirmed = set[int]()
    for one, loss in zip(measured, fitted.losses, strict=True):
        for node, partner in (one.pair, one.pair[::-1]):
            if loss is not None and partner in cleared:
                against.setdefault(node, []).append(loss)
                if loss < fitted.cut and node not in cleared:
                    lows.setdefault(node, []).append(loss)
                    partners.setdefault(node, []).append(partner)
                    confirmed.update({node} if one.round >= confirming else ())
    # What is low with the same partner again and again may be the way between them. Few pods have no other partners.
    often = LEAST_LOW if len(places) > FEW else len(measured)
    counted = {
        node: len(found) - sum(times - 1 for times in Counter(found).values() if times >= often)
        for node, found in partners.items()
    }
    slow = [
        SlowNode(node, exp(median(low)), len(low), alone=node in fitted.alone)
        for node, low in lows.items()
        if counted[node] >= max(LEAST_LOW, MOST_LOW * (len(against[node]) - len(low)))
        if len({*partners[node]}) > 1 and node in confirmed and node not in hanging
    ]
    slow = sorted([*slow, *(SlowNode(node, 0.0, count) for node, count in hanging.items())])
    known = cleared.union(one.node for one in slow)
    unclear = [node for node in range(len(places)) if node not in known]
    ways = _slow_ways(places, fitted, measured, cleared)
    return PairVerdict(
        slow=slow,
        unclear=unclear,
        cleared=frozenset(cleared),
        ways=ways,
        dead=not any(one.speed for one in measured),
        seen=1 - exp(fitted.cut),
        shares={node: exp(median(losses)) for node, losses in against.items()},
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


def _slow_ways(
    places: Sequence[Place], fitted: PairFit, measured: Sequence[PairSpeed], cleared: Collection[int]
) -> SlowWays:
    found: dict[Pair, list[float]] = {}
    for one, loss in zip(measured, fitted.losses, strict=True):
        if one.pair[0] in cleared and one.pair[1] in cleared:
            found.setdefault(one.pair, []).extend([loss] if loss is not None else [])
    low = {pair: times for pair, times in found.items() if any(loss < fitted.cut for loss in times)}
    always = {pair for pair, times in low.items() if all(loss < fitted.cut for loss in times)}
    borders = _slow_borders(places, found, always)
    rest = [pair for pair in always if not any(_crosses(places, pair, place) for place in borders)]
    again = [pair for pair in rest if len(low[pair]) > 1]
    fabric = len(again) >= LEAST_LOW and len(rest) > FABRIC_SHARE * len(found)
    links = [] if fabric else sorted(pair for pair in rest if _alike(low[pair], fitted.cut))
    explained = len(always) - len(rest) + (len(rest) if fabric else len(links))
    return SlowWays(links, borders, fabric, len(low) - explained, low.keys())


def _alike(losses: Sequence[float], cut: float) -> bool:
    """Slow by as much each time: what slows a pair by chance does so by more or less."""
    return len(losses) >= LEAST_LOW and (len({*losses}) == 1 or max(losses) - min(losses) <= -cut)


def _slow_borders(places: Sequence[Place], pairs: Collection[Pair], low: set[Pair]) -> list[Place]:
    """The widest places of which all pairs with others are low, from several of their nodes."""
    found: list[Place] = []
    slow = Counter(place for pair in low for place in _borders(places, pair))
    for place in sorted((one for one in slow if slow[one] >= LEAST_LOW), key=lambda one: (len(one), one)):
        crossing = [pair for pair in pairs if _crosses(places, pair, place)]
        inside = {node for pair in crossing for node in pair if _is_in(places[node], place)}
        if len(inside) > 1 and low.issuperset(crossing) and not any(_is_in(place, wider) for wider in found):
            found.append(place)
    return found


def _borders(places: Sequence[Place], pair: Pair) -> set[Place]:
    """Places that a pair crosses into or out of."""
    one, other = ({area(places[node])[:depth] for depth in range(1, len(places[node]) + 1)} for node in pair)
    return one ^ other


def _is_in(place: Place, wider: Place) -> bool:
    return place[: len(wider)] == wider


def _crosses(places: Sequence[Place], pair: Pair, place: Place) -> bool:
    return _is_in(places[pair[0]], place) != _is_in(places[pair[1]], place)

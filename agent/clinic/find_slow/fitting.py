"""What speed is usual for a pair, and how far each is from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence, Set
from math import inf, log
from statistics import median
from typing import NamedTuple, TypeVar

from agent.clinic.find_slow.matching import FEW, Pair, stratum
from agent.decide.location import Place

LEAST_LOSS = 0.12
"""A pair with more than 88 % of the usual speed is never low."""
FLOOR = log(1 - LEAST_LOSS)
SIGMAS = 4.0
LEAST_OTHERS = 2
"""With fewer pairs of other nodes that are as far apart, nobody knows what is usual; up to FEW nodes, one is enough."""
LEAST_TOGETHER = 3
"""With fewer pairs in a round that are not low, nobody knows whether it was slow for all."""
LEAST_LOW = 3
"""So many low pairs with cleared nodes blame a node, and so many low measurements a link."""
MOST_LOW = 4
LEAST_LEFT = 0.45
"""So much of the speed is left, at least, from one distance to the next: what has less is low even if nobody knows what
is usual there."""
FEW_ALIKE = 6
FITS = 4
Key = TypeVar("Key", bound=Hashable)


def scatter(values: Sequence[float]) -> float:
    """A standard deviation that outliers do not move: by the median distance from the median."""
    middle = median(values)
    # 1.4826 is a normal distribution's standard deviation over its median absolute deviation.
    return 1.4826 * median(abs(value - middle) for value in values)


class PairSpeed(NamedTuple):
    """One pair in one round."""

    round: int
    pair: Pair
    speed: float
    """MB/s of the slower direction; 0: nothing came within the time"""
    rail: int = 0
    """Which GPUs of the two, and their NICs"""


class PairFit(NamedTuple):
    """The speeds against what is usual for their distance and their round."""

    losses: Sequence[float | None]
    """Logarithm of the share of the usual speed, -inf for a time-out; None: nobody knows what is usual."""
    cut: float
    """A pair with less than this is low; one that has lost less than half of it is good."""
    strata: Sequence[int]
    alone: Set[int]
    """Nodes that were only compared with pairs that are nearer."""

    def cleared(self, measured: Sequence[PairSpeed]) -> set[int]:
        """Nodes with a good pair, and those of which most pairs are as usual. But where all pairs of a distance are
        slow those of slow nodes seem good: MOST_LOW nearer low pairs outweigh one."""
        goods: dict[int, list[int]] = {}
        losses: dict[int, list[float]] = {}
        lows = []
        for one, loss, depth in zip(measured, self.losses, self.strata, strict=True):
            for node in one.pair if loss is not None else ():
                losses.setdefault(node, []).append(loss or 0.0)
                if (loss or 0.0) >= self.cut / 2:
                    goods.setdefault(node, []).append(depth)
            if loss is not None and loss < self.cut:
                lows.append((one.pair, depth))
        nearer = Counter(
            node for pair, depth in lows if goods.keys() >= {*pair} for node in pair if depth > max(goods[node])
        )
        usual = {node for node, found in losses.items() if len(found) >= LEAST_LOW and median(found) >= FLOOR}
        return usual | {node for node, found in goods.items() if nearer[node] < MOST_LOW * len(found)}


def fit(places: Sequence[Place], measured: Sequence[PairSpeed]) -> PairFit:
    """First by all pairs, leaving out again and again those that are low; then by the pairs of cleared nodes."""
    pairs = _Pairs(places, measured)
    return pairs.fit_trusted(pairs.fit_all().cleared(measured))


class _Pairs:
    """Those through which something came."""

    def __init__(self, places: Sequence[Place], measured: Sequence[PairSpeed]) -> None:
        self._measured = measured
        self._few = len(places) <= FEW
        self._strata = [stratum(places, one.pair) for one in measured]
        self._rounds = [one.round for one in measured]
        self._speeds = {at: log(one.speed) for at, one in enumerate(measured) if one.speed}
        self._usual: dict[int, float] = {}
        self._extra: dict[int, float] = {}
        self._used = self._comparable()

    def fit_all(self) -> PairFit:
        kept = [*self._speeds]
        for _ in range(FITS):
            self._polish(kept)
            losses = {at: self._speeds[at] - self._expected(at) for at in self._speeds}
            kept = [at for at in losses if losses[at] >= FLOOR]
        return self._told({at: losses[at] for at in self._used}, FLOOR, {})

    def fit_trusted(self, cleared: set[int]) -> PairFit:
        kept = [at for at in self._speeds if cleared.issuperset(self._measured[at].pair)]
        self._usual = {}
        for _ in range(FITS):
            self._polish(kept)
        cells = _grouped(kept, [*zip(self._strata, self._rounds, strict=True)])
        of_cell = {
            cell: self._upper([self._speeds[at] for at in found]) for cell, found in cells.items() if len(found) > 2
        }
        losses = {
            at: self._speeds[at] - of_cell.get((self._strata[at], self._rounds[at]), self._expected(at))
            for at in self._used
            if self._strata[at] in self._usual
        }
        scattered = [losses[at] for at in kept if at in losses] or [0.0]
        cut = min(FLOOR, -SIGMAS * scatter(scattered))
        return self._told(losses, cut, self._against_nearer(cut))

    def _against_nearer(self, cut: float) -> dict[int, float]:
        """Pairs as fast as is usual for nearer ones, and those that are slower than any distance makes them."""
        found = {}
        for at, speed in self._speeds.items():
            nearer = min((depth for depth in self._usual if depth > self._strata[at]), default=None)
            if nearer is not None:
                loss = speed - self._usual[nearer] - self._extra.get(self._rounds[at], 0.0)
                if loss >= cut / 2 or loss < cut + (nearer - self._strata[at]) * log(LEAST_LEFT):
                    found[at] = loss
        return found

    def _polish(self, kept: Sequence[int]) -> None:
        """What is usual is that of pairs as far apart, times what the round has more or less than others."""
        size: dict[int, int] = {}
        for depth, found in _grouped(kept, self._strata).items():
            self._usual[depth] = self._upper(
                [self._speeds[at] - self._extra.get(self._rounds[at], 0.0) for at in found]
            )
            size[depth] = len(found)
        for depth, count in size.items():
            further = [self._usual[far] for far in size if far < depth and size[far] >= count]
            self._usual[depth] = max([self._usual[depth], *further])
        self._extra = {
            number: self._upper([self._speeds[at] - self._usual[self._strata[at]] for at in found])
            for number, found in _grouped(kept, self._rounds).items()
            if len(found) >= LEAST_TOGETHER
        }

    def _upper(self, speeds: Sequence[float]) -> float:
        """The upper quartile, as what is unusual is slower, and may be the half; of few, the fastest."""
        return sorted(speeds)[round((1 if self._few or len(speeds) < FEW_ALIKE else 0.75) * (len(speeds) - 1))]

    def _expected(self, at: int) -> float:
        return self._usual[self._strata[at]] + self._extra.get(self._rounds[at], 0.0)

    def _told(self, losses: Mapping[int, float], cut: float, nearer: Mapping[int, float]) -> PairFit:
        every = {**nearer, **losses}
        known = [every.get(at) if one.speed else -inf for at, one in enumerate(self._measured)]
        alike = {node for at in losses for node in self._measured[at].pair}
        alone = {node for at in nearer for node in self._measured[at].pair} - alike
        return PairFit(known, cut, self._strata, alone)

    def _comparable(self) -> list[int]:
        """Pairs for which enough others are as far apart and share no node with them; of few nodes, those of which
        neither is in all pairs that are as far apart."""
        ends = {at: (self._strata[at], self._measured[at].pair) for at in self._speeds}
        alike, same = Counter(depth for depth, _ in ends.values()), Counter(ends.values())
        of_node = Counter((depth, node) for depth, pair in ends.values() for node in pair)
        found = []
        for at, (depth, pair) in ends.items():
            of_ends = [of_node[depth, node] for node in pair]
            others = alike[depth] - sum(of_ends) + same[depth, pair]
            if max(of_ends) < alike[depth] if self._few else others >= LEAST_OTHERS:
                found.append(at)
        return found


def _grouped(found: Sequence[int], keys: Sequence[Key]) -> dict[Key, list[int]]:
    groups: dict[Key, list[int]] = {}
    for one in found:
        groups.setdefault(keys[one], []).append(one)
    return groups

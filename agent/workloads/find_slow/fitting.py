"""What speed is usual for a pair, and how far each is from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from math import inf, log
from statistics import median
from typing import NamedTuple, TypeVar

from agent.decide.location import Place
from agent.workloads.find_slow.matching import FEW, Pair, stratum

LEAST_LOSS = 0.12
"""A pair with more than 88 % of the usual speed is never low."""
SIGMAS = 5.0
LEAST_ALIKE = 4
"""With fewer pairs that are as far apart, nobody knows what is usual; with FEW nodes, two are enough."""
FITS = 4
Key = TypeVar("Key", bound=Hashable)


class PairSpeed(NamedTuple):
    """One pair in one round."""

    round: int
    pair: Pair
    speed: float
    """MB/s of the slower direction; 0: nothing came within the time"""


class PairFit(NamedTuple):
    """The speeds against what is usual for their distance and their round."""

    losses: Sequence[float | None]
    """Logarithm of the share of the usual speed, -inf for a time-out; None: nobody knows what is usual."""
    cut: float
    """A pair with less than this is low."""

    def cleared(self, measured: Sequence[PairSpeed]) -> set[int]:
        """Nodes with a pair that is not low."""
        found = zip(measured, self.losses, strict=True)
        return {node for one, loss in found if loss is not None and loss >= self.cut for node in one.pair}


def fit(places: Sequence[Place], measured: Sequence[PairSpeed]) -> PairFit:
    """First by all pairs, leaving out again and again those that are low; then by the pairs of cleared nodes."""
    pairs = _Pairs(places, measured)
    rough = pairs.fit_all()
    return pairs.fit_trusted(rough.cleared(measured))


class _Pairs:
    """Those that were fast enough to be compared."""

    def __init__(self, places: Sequence[Place], measured: Sequence[PairSpeed]) -> None:
        self._measured = measured
        self._few = len(places) <= FEW
        self._strata = [stratum(places, one.pair) for one in measured]
        self._rounds = [one.round for one in measured]
        self._speeds = {at: log(one.speed) for at, one in enumerate(measured) if one.speed}
        self._used = self._comparable()
        self._together = Counter(self._rounds[at] for at in self._used)
        self._usual: dict[int, float] = {}
        self._extra = dict.fromkeys(self._rounds, 0.0)

    def fit_all(self) -> PairFit:
        kept, losses, cut = self._used, dict[int, float](), log(1 - LEAST_LOSS)
        for _ in range(FITS):
            self._polish(kept)
            losses = {at: self._speeds[at] - self._expected(at) for at in self._used}
            kept = [at for at in self._used if losses[at] >= cut]
        return self._told(losses, cut)

    def fit_trusted(self, cleared: set[int]) -> PairFit:
        kept = [at for at in self._used if cleared.issuperset(self._measured[at].pair)]
        for _ in range(FITS):
            self._polish(kept)
        cells = _grouped(kept, [*zip(self._strata, self._rounds, strict=True)])
        of_cell = {cell: _usual([self._speeds[at] for at in found]) for cell, found in cells.items() if len(found) > 2}
        losses = {
            at: self._speeds[at] - of_cell.get((self._strata[at], self._rounds[at]), self._expected(at))
            for at in self._used
        }
        scattered = [losses[at] for at in kept] or [0.0]
        spread = 1.4826 * median(abs(loss - median(scattered)) for loss in scattered)
        cut = min(log(1 - LEAST_LOSS), -SIGMAS * spread)
        return self._told({**self._as_good_as_near(cut), **losses}, cut)

    def _as_good_as_near(self, cut: float) -> dict[int, float]:
        """Pairs as fast as is usual for nearer ones, where too few are as far apart."""
        found = {}
        for at, speed in self._speeds.items():
            nearer = [usual for depth, usual in self._usual.items() if depth > self._strata[at]]
            loss = speed - max(nearer, default=inf) - self._extra[self._rounds[at]]
            if loss >= cut:
                found[at] = loss
        return found

    def _polish(self, kept: Sequence[int]) -> None:
        """What is usual is that of pairs as far apart, times what the round has more or less than others."""
        for depth, found in _grouped(kept, self._strata).items():
            self._usual[depth] = _usual([self._speeds[at] - self._extra[self._rounds[at]] for at in found])
        for number, found in _grouped(kept, self._rounds).items():
            if self._together[number] > 2:
                self._extra[number] = _usual([self._speeds[at] - self._usual[self._strata[at]] for at in found])

    def _expected(self, at: int) -> float:
        return self._usual[self._strata[at]] + self._extra[self._rounds[at]]

    def _told(self, losses: Mapping[int, float], cut: float) -> PairFit:
        return PairFit([losses.get(at) if one.speed else -inf for at, one in enumerate(self._measured)], cut)

    def _comparable(self) -> list[int]:
        """Pairs with enough others that are as far apart, and not most of them of the same node."""
        alike = Counter(self._strata[at] for at in self._speeds)
        if self._few:
            return [at for at in self._speeds if alike[self._strata[at]] > 1]
        of_node = Counter((self._strata[at], node) for at in self._speeds for node in self._measured[at].pair)
        return [
            at
            for at in self._speeds
            for depth in [self._strata[at]]
            if alike[depth] >= LEAST_ALIKE
            and max(of_node[depth, node] for node in self._measured[at].pair) <= alike[depth] / 2
        ]


def _usual(speeds: Sequence[float]) -> float:
    """The upper quartile: what is not as usual is slower, and may be the half of a few."""
    return sorted(speeds)[round(0.75 * (len(speeds) - 1))]


def _grouped(found: Sequence[int], keys: Sequence[Key]) -> dict[Key, list[int]]:
    groups: dict[Key, list[int]] = {}
    for one in found:
        groups.setdefault(keys[one], []).append(one)
    return groups

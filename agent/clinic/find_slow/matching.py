"""Who is paired with whom: rounds of disjoint pairs of nodes, drawn by place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from agent.decide.location import Place

Pair = tuple[int, int]
"""Node ranks, the lower one first."""

FIRST_ROUNDS = 4
FIRST_PART = 2
"""After so many of them, it is looked who hangs."""
CONFIRMING_ROUNDS = 2
FEW = 4
"""Up to so many nodes, all pairs are measured."""
LEAST_PAIRS = 3


def area(place: Place) -> Place:
    """Where a node stands, without the host: pods of one host are no nearer to each other than those of one rack."""
    return place[:-1] if len(place) > 2 else place


def stratum(places: Sequence[Place], pair: Pair) -> int:
    """How many parts of their places two nodes share: pairs that share as many are compared with each other."""
    one, other = (area(places[node]) for node in pair)
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    return shared


def first_round_count(nodes: int) -> int:
    """How many rounds there are before what is in doubt is measured once more."""
    return nodes - 1 + nodes % 2 if nodes <= FEW else FIRST_ROUNDS


def first_rounds(places: Sequence[Place]) -> list[list[Pair]]:
    """Rounds in which no two nodes meet twice and every node has LEAST_PAIRS partners, or all others.

    Neighbours are paired first, to compare like with like; the last round crosses as many borders as it can, so that
    these are measured, too.
    """
    nodes = sorted(range(len(places)), key=lambda node: (area(places[node]), node))
    if len(nodes) <= FEW:
        return [_circle(nodes, number) for number in range(first_round_count(len(nodes)))]
    rounds: list[list[Pair]] = []
    for number in range(FIRST_ROUNDS - 1):
        rounds.append(_Round(places, nodes, rounds).near(number))
    rounds.append(_Round(places, nodes, rounds).far())
    if least_pairs(rounds, len(nodes)) < LEAST_PAIRS:
        return [_circle(nodes, number) for number in range(FIRST_ROUNDS)]
    return rounds


def confirming_rounds(
    places: Sequence[Place],
    before: Sequence[Sequence[Pair]],
    suspects: Collection[int],
    good: Collection[int],
    low: Sequence[Pair],
) -> list[list[Pair]]:
    """Each suspect with good partners that it has not met, where there are any; pairs of good nodes that were `low`
    once more; and for comparison other good nodes that are as far apart, and some as in the first round."""
    rounds = [list(one) for one in before]
    usual = [pair for pair in before[0] if pair[0] in good and pair[1] in good]
    for _ in range(CONFIRMING_ROUNDS):
        new = _Round(places, sorted({*suspects, *good}), rounds)
        for suspect in suspects:
            new.accompany(suspect, good)
        new.leave_out(suspects)
        new.compare()
        for pair in low:
            new.take(*pair)
        new.compare()
        for pair in usual:
            new.take(*pair)
        rounds.append(new.any())
    return [one for one in rounds[len(before) :] if one]


def least_pairs(rounds: Iterable[Iterable[Pair]], nodes: int) -> int:
    """The fewest pairs that a node has."""
    counts = Counter(node for one in rounds for pair in one for node in pair)
    return min(counts[node] for node in range(nodes))


class _Round:
    """One round while it is drawn."""

    def __init__(self, places: Sequence[Place], nodes: Sequence[int], before: Sequence[Sequence[Pair]]) -> None:
        self._places = places
        self._nodes = nodes
        self._free = dict.fromkeys(nodes)
        self._met = {pair for one in before for pair in one}
        counts = Counter(node for pair in self._met for node in pair)
        most = max(counts.values(), default=0)
        self._sat_out = [node for node in nodes if counts[node] < most]
        self._pairs: list[Pair] = []

    def near(self, number: int) -> list[Pair]:
        """As many pairs as possible inside the smallest areas, then inside greater ones. Who has sat out comes
        first."""
        for node in self._sat_out:
            self.accompany(node, self._free, again=False)
        areas = {node: area(self._places[node]) for node in self._nodes}
        for depth in range(max(map(len, areas.values()), default=0), -1, -1):
            groups: dict[Place, list[int]] = {}
            for node in self._nodes:
                groups.setdefault(areas[node][:depth], []).append(node)
            for group in groups.values():
                self._pair_up(group, _circle(group, number))
        return self._pairs

    def far(self) -> list[Pair]:
        """Each node of one half with one of the other, neighbours with nodes of several areas."""
        half = len(self._nodes) // 2
        for node in self._sat_out:
            self.accompany(node, self._free, again=False)
        seen: Counter[Place] = Counter()
        seats = {}
        for node in self._nodes[half:]:
            place = area(self._places[node])
            seats[node] = seen[place]
            seen[place] += 1
        others = sorted(seats, key=lambda node: seats[node])
        self._pair_up(self._nodes, [_pair(*pair) for pair in zip(self._nodes[:half], others, strict=False)])
        return self._pairs

    def compare(self) -> None:
        """As many other pairs for each distance as there are, and two more; first one for each."""
        counts = sorted(Counter(stratum(self._places, pair) for pair in self._pairs).items())
        for depth, missing in [*((depth, 1) for depth, _ in counts), *((depth, count + 1) for depth, count in counts)]:
            for one in reversed(list(self._free)):
                if missing and one in self._free:
                    alike = (other for other in self._free if other != one)
                    other = next((it for it in alike if stratum(self._places, (one, it)) == depth), None)
                    if other is not None:
                        self.take(one, other)
                        missing -= 1

    def any(self) -> list[Pair]:
        """Whoever is left with the next."""
        left = [node for node in self._nodes if node in self._free]
        for one, other in zip(left[::2], left[1::2], strict=False):
            self.take(one, other)
        return self._pairs

    def accompany(self, node: int, partners: Iterable[int], *, again: bool = True) -> None:
        """The nearest of these that is free and new to the node; one that it has met, if there must be one."""
        if node not in self._free:
            return
        free = [one for one in partners if one in self._free and one != node]
        fresh = [one for one in free if _pair(node, one) not in self._met]
        if found := fresh or (free if again else []):
            self.take(node, max(found, key=lambda one: (stratum(self._places, (node, one)), -abs(node - one))))

    def take(self, one: int, other: int) -> None:
        if one in self._free and other in self._free:
            del self._free[one], self._free[other]
            self._pairs.append(_pair(one, other))

    def leave_out(self, nodes: Iterable[int]) -> None:
        for node in nodes:
            self._free.pop(node, None)

    def _pair_up(self, group: Sequence[int], wanted: Iterable[Pair]) -> None:
        """The wanted pairs as far as they are new, then whoever is left."""
        begun = len(self._pairs)
        for pair in wanted:
            if pair not in self._met:
                self.take(*pair)
        left = [node for node in group if node in self._free]
        for at, one in enumerate(left):
            for other in left[at + 1 :]:
                if one not in self._free:
                    break
                if _pair(one, other) not in self._met:
                    self.take(one, other)
        left = [node for node in group if node in self._free]
        for one, other in zip(left[::2], left[1::2], strict=False):
            self._swap(one, other, begun)

    def _swap(self, one: int, other: int, begun: int) -> None:
        """Two that have met take a pair of this group apart, to be paired with its ends."""
        for at in range(begun, len(self._pairs)):
            for a, b in (self._pairs[at], self._pairs[at][::-1]):
                if _pair(one, a) not in self._met and _pair(other, b) not in self._met:
                    self._pairs[at] = _pair(one, a)
                    self._pairs.append(_pair(other, b))
                    del self._free[one], self._free[other]
                    return


def _pair(one: int, other: int) -> Pair:
    return (one, other) if one < other else (other, one)


def _circle(nodes: Sequence[int], number: int) -> list[Pair]:
    """A round of the circle method: everybody meets everybody within as many rounds as there are others."""
    around: list[int | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    first, *others = around
    shift = number % max(1, len(others))
    turned = [first, *others[shift:], *others[:shift]]
    couples = zip(turned[: len(turned) // 2], reversed(turned), strict=False)
    return [_pair(one, other) for one, other in couples if one is not None and other is not None]

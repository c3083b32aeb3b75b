"""Which rank waits for which, as a graph.

Ranks that wait for the same others share one set of those: with 500 ranks that wait for 500 others there are 1,000
edges to follow, not 250,000.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

Ranks = frozenset[int]
Node = int | Ranks
Neighbours = Callable[[Node], Iterable[Node]]


class Edges:
    """Built from pairs of a rank and those that it waits for; they may be none."""

    def __init__(self, pairs: Iterable[tuple[int, Ranks]]) -> None:
        self._awaited: dict[int, dict[Ranks, None]] = {}
        """Rank → the sets that it waits for, in their order."""
        self._waiters: dict[Ranks, list[int]] = {}
        """Set → the ranks that wait for it."""
        for waiter, others in pairs:
            sets = self._awaited.setdefault(waiter, {})
            if others and others not in sets:
                sets[others] = None
                self._waiters.setdefault(others, []).append(waiter)
        self._sets_with: dict[int, list[Ranks]] = {}
        """Rank → the sets that it is in."""
        for others in self._waiters:
            for key in others:
                self._sets_with.setdefault(key, []).append(others)
        self._reached: dict[tuple[Ranks, ...], Ranks] = {}
        self._alone: dict[int, list[int]] = {}
        """Rank → those that wait for it and for no other."""
        for waiter, sets in self._awaited.items():
            if len(sets) == 1 and len(others := next(iter(sets))) == 1:
                self._alone.setdefault(next(iter(others)), []).append(waiter)

    def roots(self) -> set[int]:
        """Ranks that others wait for and that wait for nobody."""
        return {key for key in self._sets_with if key not in self._awaited}

    def reach(self, keys: Iterable[int]) -> Ranks:
        """Ranks that wait for any of these, directly or through others."""
        sets = tuple(dict.fromkeys(one for key in keys for one in self._sets_with.get(key, ())))
        if sets not in self._reached:
            self._reached[sets] = _ranks_of(_spread(sets, self._before, set()))
        return self._reached[sets]

    def count(self, key: int) -> int:
        """How many other ranks wait for it, directly or through others."""
        return len(self.reach([key]) - {key})

    def chain(self, key: int) -> tuple[int, ...]:
        """The longest line of ranks that each wait for one alone, ending at those that wait for `key`."""
        line: dict[int, None] = {}
        before = self._alone.get(key, [])
        # Else it would not end in a circle.
        while len(before) == 1 and before[0] != key:
            line[before[0]] = None
            before = [one for one in self._alone.get(before[0], []) if one not in line]
        return tuple(reversed(line)) if len(line) > 1 else ()

    def circles(self) -> set[int]:
        """Ranks that wait for themselves through others: those of strongly connected components, by Kosaraju."""
        found: set[int] = set()
        seen: set[Node] = set()
        for start in reversed(_last_left(self._awaited, self._after)):
            together = _spread([start], self._before, seen)
            if len(together) > 1:
                found |= _ranks_of(together)
        return found

    def _after(self, node: Node) -> Iterable[Node]:
        return self._awaited.get(node, ()) if isinstance(node, int) else node

    def _before(self, node: Node) -> Iterable[Node]:
        return self._sets_with.get(node, ()) if isinstance(node, int) else self._waiters[node]


def _last_left(starts: Iterable[Node], after: Neighbours) -> Sequence[Node]:
    """All nodes that can be come to, in the order in which a walk in depth leaves them."""
    left: list[Node] = []
    seen: set[Node] = set()
    for start in starts:
        if start in seen:
            continue
        seen.add(start)
        way = [(start, iter(after(start)))]
        while way:
            node, ahead = way[-1]
            new = next((one for one in ahead if one not in seen), None)
            if new is None:
                left.append(node)
                way.pop()
            else:
                seen.add(new)
                way.append((new, iter(after(new))))
    return left


def _spread(starts: Iterable[Node], neighbours: Neighbours, seen: set[Node]) -> set[Node]:
    """These and what can be come to from them, without what was seen; that is seen then."""
    found: set[Node] = set()
    new = list(starts)
    while new:
        node = new.pop()
        if node not in seen:
            seen.add(node)
            found.add(node)
            new += neighbours(node)
    return found


def _ranks_of(nodes: Iterable[Node]) -> Ranks:
    return frozenset(node for node in nodes if isinstance(node, int))

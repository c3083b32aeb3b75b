"""The order of the pods: neighbours in the network are neighbours in rank. The plan is made by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from agent.decide.facts import SOURCES, Facts
from agent.decide.location import Place
from agent.decide.plan import Plan, PlannedPeer, peer_name
from agent.decide.words import count_text

Places = Mapping[str, Place]
"""What one pod knows of its place: source → place (empty when it knows none)."""


class Ordering(NamedTuple):
    """Completion indices in rank order, the place of each index, and where places came from."""

    indices: tuple[int, ...]
    places: Mapping[int, Place]
    source: str
    warnings: tuple[str, ...] = ()


def by_index(indices: Iterable[int]) -> Ordering:
    """Plain index order, places left out."""
    ordered = tuple(sorted(indices))
    return Ordering(ordered, dict.fromkeys(ordered, ()), "")


def by_topology(peers: Mapping[int, Places]) -> Ordering:
    """Group pods by place: cluster, then block, then sub-block, then host.

    At each level groups are sorted by the smallest index in them and pods by index, so index 0 is
    always first. Pods without a place come last (index 0 never). The source used is the finest one
    that all located pods share; where they share none, index order is kept with a warning.
    """
    located = {index for index, places in peers.items() if any(places.values())}
    if not located:
        unknown = "no pod knows its place: ranks follow the pod index"
        return by_index(peers)._replace(warnings=(unknown,) if len(peers) > 1 else ())
    source = shared_source([peers[index] for index in sorted(located)])
    if not source:
        return by_index(peers)._replace(warnings=(_no_shared_source(peers, located),))
    places = {index: (peers[index][source] if index in located else ()) for index in peers}
    ordered = sorted(peers, key=_sort_keys(places).__getitem__)
    lost = sorted(set(peers) - located)
    shown = ", ".join(map(str, lost[:8])) + (", …" if len(lost) > 8 else "")
    warning = f"{count_text(len(lost), 'pod')} ({shown}) without a known place: last in rank order"
    return Ordering(tuple(ordered), places, source, (warning,) if lost else ())


def shared_source(peers: Sequence[Places]) -> str:
    """The finest source that all of `peers` have, or an empty string."""
    return next((source for source in SOURCES if all(places.get(source) for places in peers)), "")


def _sort_keys(places: Mapping[int, Place]) -> dict[int, tuple[int, ...]]:
    """For each index: last or not, the smallest index of its group at every level, and the index."""
    depth = max(len(place) for place in places.values())
    smallest: dict[Place, int] = {}
    for index in sorted(places):
        for level in range(1, depth + 1):
            smallest.setdefault(_prefix(places[index], level), index)
    keys = {}
    for index, place in places.items():
        if place:
            groups = tuple(smallest[_prefix(place, level)] for level in range(1, depth + 1))
            keys[index] = (0, *groups, index)
        else:
            keys[index] = (0, 0) if index == 0 else (1, index)
    return keys


def _prefix(place: Place, level: int) -> Place:
    """The first `level` parts; a shorter place is padded, so it differs from every longer one."""
    return place[:level] + ("",) * (level - len(place))


def _no_shared_source(peers: Mapping[int, Places], located: set[int]) -> str:
    have = ", ".join(
        f"{source} on {sum(bool(peers[index].get(source)) for index in located)} of {len(located)}"
        for source in SOURCES
        if any(peers[index].get(source) for index in located)
    )
    return f"pods know their places from different sources ({have}): ranks follow the pod index"


def make_plan(
    facts: Iterable[Facts], *, epoch: str, prefix: str, domain: str, slots: int, topology: bool = True
) -> Plan:
    """The plan for pods with these facts, whatever order they come in. That they fit is checked before each run.

    `topology=False` keeps the index order (`--order index`) but still records the places.
    """
    known = {fact.index: fact for fact in facts}
    ordering = by_topology({index: dict(fact.places) for index, fact in known.items()})
    if not topology:
        ordering = by_index(known)._replace(places=ordering.places, source=ordering.source)
    peers = tuple(
        PlannedPeer(
            index=index,
            name=peer_name(prefix, index, domain),
            address=known[index].address,
            node=known[index].node,
            place=ordering.places[index],
            pod_name=known[index].pod_name,
        )
        for index in ordering.indices
    )
    return Plan(epoch, slots, peers, ordering.source, ordering.warnings)

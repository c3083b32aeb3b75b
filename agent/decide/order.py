"""The order of the pods: neighbours in the network are neighbours in rank. The plan is made by it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
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


def by_topology(peers: Mapping[int, Places]) -> Ordering:
    """Group pods by place: cluster, then block, then sub-block, then host.

    At each level groups are sorted by the smallest index in them and pods by index, so index 0 is
    always first. Pods without a place come last (index 0 never). The source used is the finest one
    that all located pods share; where they share none, index order is kept with a warning.
    """
    located = {index: peers[index] for index in sorted(peers) if any(peers[index].values())}
    source = shared_source(located.values()) if located else ""
    if not source:
        known = {one: sum(bool(places.get(one)) for places in located.values()) for one in SOURCES}
        have = ", ".join(f"{one} on {count} of {len(located)}" for one, count in known.items() if count)
        why = f"pods know their places from different sources ({have})" if have else "no pod knows its place"
        warnings = (f"{why}: ranks follow the pod index",) if len(peers) > 1 else ()
        return Ordering(tuple(sorted(peers)), dict.fromkeys(sorted(peers), ()), "", warnings)
    places = {index: located[index][source] if index in located else () for index in sorted(peers)}
    groups = _groups({index: places[index] for index in located})
    lost = [index for index in places if index not in located]
    # Pods of one host, and those without a place, stay by index: the sort is stable.
    ordered = sorted(places, key=lambda index: (index > 0 and index not in located, groups.get(index, [])))
    shown = ", ".join(map(str, lost[:8])) + (", …" if len(lost) > 8 else "")
    warning = f"{count_text(len(lost), 'pod')} ({shown}) without a known place: last in rank order"
    return Ordering(tuple(ordered), places, source, (warning,) if lost else ())


def shared_source(peers: Collection[Places]) -> str:
    """The finest source that all of `peers` have, or an empty string."""
    return next((source for source in SOURCES if all(places.get(source) for places in peers)), "")


def _groups(places: Mapping[int, Place]) -> dict[int, list[int]]:
    """For each index, in their order, the smallest index of its group at every level."""
    depth = max(map(len, places.values()))
    # A shorter place is padded, so that it differs from every longer one.
    padded = {index: place + ("",) * (depth - len(place)) for index, place in places.items()}
    smallest: dict[Place, int] = {}
    for index, place in padded.items():
        for level in range(depth):
            smallest.setdefault(place[: level + 1], index)
    return {index: [smallest[place[: level + 1]] for level in range(depth)] for index, place in padded.items()}


def make_plan(
    facts: Iterable[Facts], *, epoch: str, prefix: str, domain: str, slots: int, topology: bool = True
) -> Plan:
    """The plan for pods with these facts, whatever order they come in. That they fit is checked before each run.

    `topology=False` keeps the index order (`--order index`) but still records the places.
    """
    known = {fact.index: fact for fact in facts}
    ordering = by_topology({index: dict(fact.places) for index, fact in known.items()})
    if not topology:
        ordering = Ordering(tuple(sorted(known)), ordering.places, ordering.source)
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

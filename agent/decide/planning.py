"""Making the plan out of every pod's facts."""

from __future__ import annotations

from collections.abc import Iterable

from agent.decide.facts import Facts
from agent.decide.order import by_index, by_topology
from agent.decide.peer_names import peer_name
from agent.decide.plan import Plan, PlannedPeer


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
        )
        for index in ordering.indices
    )
    return Plan(epoch, slots, peers, ordering.source, ordering.warnings)

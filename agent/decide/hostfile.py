"""Open MPI hostfiles and the order files that scripts of the old testbeds read."""

from __future__ import annotations

from collections.abc import Iterable

from agent.decide.location import location_text
from agent.decide.plan import Plan


def hostfile(names: Iterable[str], slots: int) -> str:
    """One `<name> slots=<n>` per line, in the order given."""
    return "".join(f"{name} slots={slots}\n" for name in names)


def rank_order(plan: Plan) -> str:
    """`<location> <name>` per line in plan order, `-` for no place."""
    return "".join(f"{location_text(peer.place)} {peer.name}\n" for peer in plan.peers)


def hostnames_order(plan: Plan) -> str:
    """One name per line in plan order."""
    return "".join(f"{peer.name}\n" for peer in plan.peers)

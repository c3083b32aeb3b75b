"""Open MPI hostfiles and the order files that scripts of the old testbeds read."""

from __future__ import annotations

import re
from collections.abc import Iterable

from agent.decide.location import location_text
from agent.decide.plan import Plan

_LINE = re.compile(r"(?P<name>[A-Za-z0-9.-]+) slots=(?P<slots>\d+)")


def hostfile(names: Iterable[str], slots: int) -> str:
    """One `<name> slots=<n>` per line, in the order given."""
    return "".join(f"{name} slots={slots}\n" for name in names)


def parse_hostfile(text: str) -> list[tuple[str, int]]:
    """(name, slots) of each line that `hostfile` writes; raises ValueError naming a line that it does not."""
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.fullmatch(line)
        if not match:
            raise ValueError(f"line {number} is not '<name> slots=<n>': {line!r}")
        entries.append((match["name"], int(match["slots"])))
    return entries


def rank_order(plan: Plan) -> str:
    """`<location> <name>` per line in plan order, `-` for no place."""
    return "".join(f"{location_text(peer.place)} {peer.name}\n" for peer in plan.peers)


def hostnames_order(plan: Plan) -> str:
    """One name per line in plan order."""
    return "".join(f"{peer.name}\n" for peer in plan.peers)

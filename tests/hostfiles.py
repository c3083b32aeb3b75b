"""Reading a hostfile back."""

from __future__ import annotations

import re

LINE = re.compile(r"(?P<name>[A-Za-z0-9.-]+) slots=(?P<slots>\d+)")


def parse_hostfile(text: str) -> list[tuple[str, int]]:
    """(name, slots) of each line that `hostfile` writes; raises ValueError naming a line that it does not."""
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        match = LINE.fullmatch(line)
        if not match:
            raise ValueError(f"line {number} is not '<name> slots=<n>': {line!r}")
        entries.append((match["name"], int(match["slots"])))
    return entries

"""XIDs: errors that NVIDIA's driver writes to the kernel log."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from agent.decide.finding import Severity

MINUTES = 15
"""How long one counts."""
FATAL = frozenset((48, 56, 57, 58, 62, 64, 65, 68, 69, 73, 74, 79, 80, 81, 95, 119, 120, 140, *range(144, 151)))
DEGRADED = frozenset((92, 94))
PROGRAMS = frozenset((13, 31, 43, 45))
"""They follow from what a program did, which has then failed by itself."""
SOURCE = "NVIDIA's XID catalogue, AzureNHC"
_LINE = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+),?\s*(.*)")


class Xid(NamedTuple):
    """One of them."""

    number: int
    device: str
    """The PCI address."""
    text: str
    seconds_ago: float


def severity(number: int) -> Severity:
    """How bad an XID is; one that is not in the catalogue is information."""
    return "fatal" if number in FATAL else "degraded" if number in DEGRADED else "information"


def parse(records: Iterable[str], uptime: float, within: float) -> list[Xid]:
    """Those of the last `within` seconds in records of /dev/kmsg: `priority,number,microseconds,flags;text`."""
    found = []
    for record in records:
        head, _, text = record.partition(";")
        fields, line = head.split(","), _LINE.match(text)
        if line is None or len(fields) < 3 or not fields[2].isdecimal():
            continue
        if (age := uptime - int(fields[2]) / 1e6) <= within:
            found.append(Xid(int(line[2]), line[1], line[3].strip(), max(0.0, age)))
    return found

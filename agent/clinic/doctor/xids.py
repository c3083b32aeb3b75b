"""XIDs and SXids: errors of GPUs and NVSwitches that NVIDIA's drivers write to the kernel log."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from agent.decide.facts import Severity

MINUTES = 15
"""How long one counts."""
FATAL = frozenset(
    (
        46, 48, 54, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, *range(144, 152), 155, 156, 158, 167,
        169, 171, 172, 56, 57, 58, 65, 73, 81,  # before Ampere; the catalogue has them as unused since
    )
)  # fmt: skip
"""The catalogue resets the GPU, restarts the machine or sends it to its maker."""
NVLINK5 = frozenset(range(144, 151))
"""Their texts say whether they are fatal: `RLW_REMAP Nonfatal XC1 …`."""
DEGRADED = frozenset((32, 92, 93, 94, 121, 157, 160, 161, 163, 164, 165, 168))
"""Something was worn or retired, and the GPU goes on."""
PROGRAMS = frozenset((11, 13, 25, 31, 37, 43, 45, 69, 80, 137))
"""They follow from what a program did, which has then failed by itself."""
LOST = 79
SOURCE = "NVIDIA's XID catalogue, AzureNHC"
_LINE = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+(?: GPU-I:\d+)?(?: GPU-CI:\d+)?)\): (\d+),?\s*(.*)")
"""As src/nvidia/src/kernel/gpu/rc/kernel_rc.c of NVIDIA's open kernel modules prints it, with the instance of a MIG."""
_LOST = re.compile(r"NVRM: GPU ([0-9a-fA-F:]+)(?:\.\d)?: (GPU has fallen off the bus\b.*)")
"""Beside XID 79, or alone."""
_LOST_AT_START = re.compile(r"NVRM: The NVIDIA GPU ([0-9a-fA-F:]+)(?:\.\d)? (.*\bfallen off the bus\b.*)")
"""When the driver is loaded: three lines at once, by rm_is_supported_device of NVIDIA's open kernel modules."""
_LINE_BREAK = r"\x0aNVRM:"
"""Between lines that a driver writes at once: the kernel escapes the line feed."""
_SWITCH = re.compile(r"nvidia-nvswitch\d+: SXid \(PCI:([0-9a-fA-F:.]+)\): (\d+), ((?:Non-f|F)atal\b.*)")
"""As NVIDIA's Fabric Manager guide has it; further lines of the same one have other words there."""
FIRST_OF_SWITCHES = 10_000


class Xid(NamedTuple):
    """One of them."""

    number: int
    device: str
    """The PCI address, and the instance of a MIG."""
    text: str
    seconds_ago: float

    @property
    def name(self) -> str:
        return f"{'SXid' if self.number >= FIRST_OF_SWITCHES else 'XID'} {self.number}"


def severity(number: int, text: str = "") -> Severity:
    """How bad one is. An XID of which the catalogue says "restart the program", or that it lacks, is information; so is
    an SXid that is not fatal."""
    if number >= FIRST_OF_SWITCHES:
        return "fatal" if text.startswith("Fatal") else "information"
    if number in NVLINK5 and re.search("non-?fatal", text, re.IGNORECASE):
        return "degraded"
    return "fatal" if number in FATAL else "degraded" if number in DEGRADED else "information"


def parse(records: Iterable[str], uptime: float, within: float) -> list[Xid]:
    """Those of the last `within` seconds in records of /dev/kmsg: `priority,number,microseconds,flags;text`."""
    found: list[Xid] = []
    for record in records:
        head, _, text = record.partition(";")
        fields, said = head.split(","), _said(text.replace(_LINE_BREAK, ""))
        if said is None or len(fields) < 3 or not fields[2].isdecimal():
            continue
        if (age := uptime - int(fields[2]) / 1e6) <= within:
            xid = said._replace(seconds_ago=max(0.0, age))
            is_again = not _LINE.match(text) and any((one.number, one.device) == (LOST, xid.device) for one in found)
            found += [] if is_again else [xid]
    return found


def _said(text: str) -> Xid | None:
    if line := _LINE.match(text) or _SWITCH.match(text):
        return Xid(int(line[2]), line[1], line[3].strip(), 0.0)
    lost = _LOST.match(text) or _LOST_AT_START.match(text)
    return Xid(LOST, lost[1], lost[2], 0.0) if lost else None

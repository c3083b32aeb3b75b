"""What /proc/self/mountinfo says of each mount."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple


class MountPoint(NamedTuple):
    """One mount; of two at the same place, the later line lies on top."""

    root: str
    """Which path of its file system is seen at `point`."""
    point: str
    writable: bool
    kind: str
    """Type of the file system."""
    options: tuple[str, ...]
    """Options of the file system; for cgroup v1 the controllers are among them."""


def parse_mounts(mountinfo: str) -> Iterator[MountPoint]:
    """The mounts in the order of the file. A line that is none is left out."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        ours, theirs = before.split(), after.split()
        if len(ours) > 5 and theirs:
            root, point = (_unescape(field) for field in ours[3:5])
            yield MountPoint(root, point, "rw" in ours[5].split(","), theirs[0], tuple(theirs[-1].split(",")))


def escaped(path: str) -> str:
    """A path as it is written there."""
    return path.translate({ord(char): f"\\{ord(char):03o}" for char in " \t\n\\"})


def _unescape(path: str) -> str:
    """Spaces and the like are octal numbers there."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)

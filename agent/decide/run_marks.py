"""What marks the processes of a run in a pod, by what /proc/self says of the pod. All texts are those of its files."""

from __future__ import annotations

import re
import zlib

_CAP_SETGID = 1 << 6
_FIRST_GROUP = 1 << 30
"""Above all groups that systems hand out, and below 1 << 31, as some programs take a signed number."""


def own_cgroup(mountinfo: str, cgroup: str) -> str:
    """The directory of this process's cgroup, if it is one of cgroup v2 and may be written; else empty.

    A privileged pod sees the whole tree of its node, so that the mount point alone is not the pod's own cgroup.
    """
    own = next((line[3:] for line in cgroup.splitlines() if line.startswith("0::/")), "")
    if not own or own.startswith("/..") or own.endswith(" (deleted)"):
        return ""
    found = ""
    for line in mountinfo.splitlines():
        mount, _, source = line.partition(" - ")
        if not source.startswith("cgroup2 ") or "rw" not in mount.split()[5].split(","):
            continue
        root, point = (_unescaped(field).rstrip("/") for field in mount.split()[3:5])
        if f"{own}/".startswith(f"{root}/"):
            found = (point + own[len(root) :]).rstrip("/")  # of two at one place, the last lies on top
    return found


def _unescaped(path: str) -> str:
    """mountinfo writes spaces and the like as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def group_of(name: str) -> int:
    """The supplementary group of a run's processes on a pod; `name` names both."""
    return _FIRST_GROUP | zlib.crc32(name.encode()) % _FIRST_GROUP


def may_take(group: int, status: str, gid_map: str) -> bool:
    """May this process give its children that group?"""
    capabilities = re.search(r"(?m)^CapEff:\s*([0-9a-f]+)$", status)
    ranges = [tuple(map(int, line.split())) for line in gid_map.splitlines()]
    mapped = any(first <= group < first + count for first, _, count in ranges)
    return mapped and capabilities is not None and bool(int(capabilities[1], 16) & _CAP_SETGID)

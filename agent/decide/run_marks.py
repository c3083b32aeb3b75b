"""What marks the processes of a run in a pod, by what /proc/self says of the pod. All texts are those of its files."""

from __future__ import annotations

import re
import zlib

from agent.mounts import parse_mounts

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
    for mount in parse_mounts(mountinfo):
        root = mount.root.rstrip("/")
        if mount.kind == "cgroup2" and mount.writable and f"{own}/".startswith(f"{root}/"):
            found = (mount.point.rstrip("/") + own[len(root) :]).rstrip("/")
    return found


def mark_name(run: str, pod: int) -> str:
    """With the index: pods that share a cgroup or a PID namespace must not end each other's processes."""
    return f"{run}.{pod}"


def run_cgroup(above: str, name: str) -> str:
    """That of a run's processes on a pod, in the agent's."""
    return f"{above}/a4-{name}"


def group_of(name: str) -> int:
    """The supplementary group of a run's processes on a pod; `name` names both."""
    return _FIRST_GROUP | zlib.crc32(name.encode()) % _FIRST_GROUP


def may_take(group: int, status: str, gid_map: str) -> bool:
    """May this process give its children that group?"""
    capabilities = re.search(r"(?m)^CapEff:\s*([0-9a-f]+)$", status)
    ranges = [tuple(map(int, line.split())) for line in gid_map.splitlines()]
    mapped = any(first <= group < first + count for first, _, count in ranges)
    return mapped and capabilities is not None and bool(int(capabilities[1], 16) & _CAP_SETGID)

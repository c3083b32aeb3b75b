"""What the cgroups of this process allow it. `root` is the file system that is looked at.

A privileged container sees the node's whole tree of cgroups at /sys/fs/cgroup, others only their own part of it, as
its top: where this process is follows from /proc/self/cgroup and from what is mounted. A limit holds for all below it.
"""

from __future__ import annotations

import os
import re

from agent.machine.files import read
from agent.mounts import parse_mounts

NO_LIMIT = 1 << 60
"""More than this is how a cgroup of version 1 writes that there is none."""


def cpu_quota(root: str = "/") -> float | None:
    """Cores that may be used at a time; None: all."""
    found = []
    for directory in own_cgroups("cpu", root):
        words = _words(f"{directory}/cpu.max")
        words = words or [*_words(f"{directory}/cpu.cfs_quota_us"), *_words(f"{directory}/cpu.cfs_period_us")]
        if len(words) == 2 and all(word.isdecimal() and int(word) for word in words):
            found.append(int(words[0]) / int(words[1]))
    return min(found, default=None)


def memory_limit(root: str = "/") -> int | None:
    """Bytes of memory; None: no limit."""
    found: list[str] = []
    for directory in own_cgroups("memory", root):
        found += (_words(f"{directory}/memory.max") or _words(f"{directory}/memory.limit_in_bytes"))[:1]
    return min((int(word) for word in found if word.isdecimal() and int(word) < NO_LIMIT), default=None)


def memory_kills(root: str = "/") -> int:
    """How many processes of this container the kernel has killed, since it began, because memory had run out."""
    for directory in own_cgroups("memory", root):
        text = read(f"{directory}/memory.events") or read(f"{directory}/memory.oom_control") or ""
        if found := re.search(r"(?m)^oom_kill (\d+)$", text):
            return int(found[1])
    return 0


def own_cgroups(controller: str, root: str = "/") -> list[str]:
    """Directories of the cgroups that this process is in for that controller, the innermost first."""
    own = _paths(read(os.path.join(root, "proc/self/cgroup")) or "")
    name = controller if controller in own else ""
    # Where its hierarchy is mounted, and which path of it is seen there; without a controller that of version 2.
    mounts = [
        (mount.point, mount.root)
        for mount in parse_mounts(read(os.path.join(root, "proc/self/mountinfo")) or "")
        if (mount.kind == "cgroup" and name in mount.options if name else mount.kind == "cgroup2")
    ]
    if name not in own or not mounts:
        return []
    top, place = next(
        ((top, below) for top, shown in mounts if (below := _below(own[name], shown)) is not None), (mounts[0][0], "")
    )
    names = place.split("/") if place else []
    return [os.path.join(root, top.lstrip("/"), *names[:count]) for count in range(len(names), -1, -1)]


def _paths(text: str) -> dict[str, str]:
    """Controller → path in its hierarchy; of version 2, which has one for all, under the empty name."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        found |= dict.fromkeys(controllers.split(","), path)
    return found


def _below(path: str, shown: str) -> str | None:
    """The rest of `path` below what a mount shows; None: it is elsewhere."""
    inside = f"{path.rstrip('/')}/".startswith(f"{shown.rstrip('/')}/") and ".." not in path.split("/")
    return path[len(shown.rstrip("/")) :].strip("/") if inside else None


def _words(path: str) -> list[str]:
    return (read(path) or "").split()

"""Limits of memory, by whichever controller of cgroups can be written: version 2 or 1."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from agent.local.syscalls import MS_NODEV, MS_NOEXEC, MS_NOSUID, mount
from agent.machine.run_processes import make_cgroup, remove_cgroup
from agent.mounts import parse_mounts

PREFIX = "a4-runtime-"


class Files(NamedTuple):
    """Names of a version's files."""

    limit: str
    others: tuple[tuple[str, str], ...]
    kills: str


VERSION_1 = Files("memory.limit_in_bytes", (), "memory.oom_control")
VERSION_2 = Files("memory.max", (("memory.swap.max", "0"), ("memory.oom.group", "1")), "memory.events")


class MemoryCgroups(NamedTuple):
    """Where cgroups with a limit can be made."""

    directory: int
    """A descriptor; -1: nowhere."""
    files: Files
    shown: str = ""
    """A path by which the directory can be mounted elsewhere; empty: there is none."""
    unified: str = ""
    """Version 2 beside it."""

    def make(self, name: str, limit: int) -> None:
        """Raises OSError."""
        os.mkdir(name, dir_fd=self.directory)
        self._write(f"{name}/{self.files.limit}", str(limit))
        for file, value in self.files.others:
            with suppress(OSError):  # kernels without swap accounting, or before 4.19
                self._write(f"{name}/{file}", value)

    def kills(self, name: str) -> int:
        """How many processes the kernel has killed in it for want of memory."""
        with open(os.open(f"{name}/{self.files.kills}", os.O_RDONLY, dir_fd=self.directory)) as file:
            found = re.search(r"(?m)^oom_kill (\d+)$", file.read())
        return int(found[1]) if found else 0

    def _write(self, path: str, value: str) -> None:
        with open(os.open(path, os.O_WRONLY, dir_fd=self.directory), "w") as file:
            file.write(value)


def remove_in(directory: int, name: str) -> None:
    """Remove an empty cgroup and those that its processes have made in it."""
    with suppress(FileNotFoundError):
        for _, directories, _, above in os.fwalk(name, topdown=False, dir_fd=directory):
            for each in directories:
                with suppress(OSError):
                    os.rmdir(each, dir_fd=above)
        os.rmdir(name, dir_fd=directory)


def version_1_directory() -> str:
    """Where this process can make cgroups with the memory controller of version 1; empty where it cannot."""
    own = _own_version_1()
    for one in parse_mounts(Path("/proc/self/mountinfo").read_text()):
        if one.kind == "cgroup" and one.writable and "memory" in one.options and own:
            below = os.path.relpath(own, one.root)
            # A container often sees its own cgroup as the root of what is mounted.
            path = one.point if below.startswith("..") else os.path.normpath(f"{one.point}/{below}")
            return path if os.path.isdir(path) else one.point
    return ""


def remove_left() -> None:
    """Remove the cgroups of version 1 that killed holders have left."""
    above = version_1_directory()
    for entry in os.listdir(above) if above else ():
        owner = entry.removeprefix(PREFIX)
        if entry.startswith(PREFIX) and owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
            remove_cgroup(f"{above}/{entry}")


def make_version_1(pid: int) -> str:
    """The cgroup of the holder with that number; empty where none can be made."""
    above = version_1_directory()
    path = f"{above}/{PREFIX}{pid}"
    return path if above and make_cgroup(path) else ""


def opened(cluster: int, version_1: str) -> MemoryCgroups:
    """The better of the cgroup of version 2 with that descriptor (-1: none) and that of version 1 (empty: none)."""
    if cluster >= 0 and _delegates(cluster):
        return MemoryCgroups(cluster, VERSION_2)
    descriptor = os.open(version_1, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if version_1 else -1
    return MemoryCgroups(descriptor, VERSION_1)


def shown_at(point: str, memory: MemoryCgroups) -> MemoryCgroups:
    """Mount both versions there, as nodes with version 1 do, so that containers can be shown their own cgroups. Where
    version 2 limits memory nothing is shown."""
    if memory.files is not VERSION_1 or memory.directory < 0:
        return memory
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    for name, kind, options in (("memory", "cgroup", "memory"), ("unified", "cgroup2", "")):
        os.makedirs(f"{point}/{name}")
        mount(kind, f"{point}/{name}", kind, flags, options)
    inode = os.fstat(memory.directory).st_ino
    ours = (path for path, _, _ in os.walk(f"{point}/memory{_own_version_1()}") if os.stat(path).st_ino == inode)
    return memory._replace(shown=next(ours, ""), unified=f"{point}/unified")


def _own_version_1() -> str:
    return next((line.split(":", 2)[2] for line in _lines("/proc/self/cgroup") if ":memory:" in line), "")


def _delegates(cluster: int) -> bool:
    """Whether those below get the controller. Where processes are in the cgroup above, the kernel refuses that."""
    try:
        for path in ("../cgroup.subtree_control", "cgroup.subtree_control"):
            with open(os.open(path, os.O_WRONLY, dir_fd=cluster), "w") as file:
                file.write("+memory")
    except OSError:
        return False
    return True


def _lines(path: str) -> Iterable[str]:
    return Path(path).read_text().splitlines()

"""A cgroup for each pod, where cgroup v2 can be written: in it the agent makes those of its runs, as on a real node."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Collection
from contextlib import suppress

from agent.decide.run_marks import own_cgroup
from agent.machine.files import read
from agent.machine.run_processes import make_cgroup, remove_cgroup

_PREFIX = "a4-cluster-"


def cluster_cgroup(name: str) -> str:
    """Where the cgroup of a cluster is to be made, in that of this process; empty where none can be."""
    own = _own_cgroup()
    return f"{own}/{_PREFIX}{name}.{os.getpid()}" if own else ""


def enter_cluster_cgroup(path: str) -> int:
    """Make a cluster's cgroup and move this process into one in it; a descriptor of the former, -1 for none.

    While no process is in it, those who see no socket of the cluster, as in a container with a /run of its own, take it
    for left behind and remove it: then it is made again.
    """
    while path:
        with suppress(FileNotFoundError):
            if not make_cgroup(path):
                break
            cluster = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                _move_into(cluster, "supervisor")
            except FileNotFoundError:
                os.close(cluster)
                raise
            except OSError:
                pass  # as below a threaded cgroup: this process goes without
            return cluster
    return -1


def remove_left_cgroups(running: Collection[str]) -> None:
    """Remove the empty ones of all clusters but those that are running."""
    own = _own_cgroup()
    for entry in os.listdir(own) if own else ():
        name = entry.removeprefix(_PREFIX).rpartition(".")[0]
        with suppress(OSError):  # others may remove it just now
            empty = "populated 0" in (read(f"{own}/{entry}/cgroup.events") or "")
            if entry.startswith(_PREFIX) and name not in running and empty:
                remove_cgroup(f"{own}/{entry}")


def _own_cgroup() -> str:
    return own_cgroup(read("/proc/self/mountinfo") or "", read("/proc/self/cgroup") or "")


def enter_cgroup(cluster: int, name: str) -> None:
    """Move this process into the cgroup of that name; `cluster` is a descriptor of the cluster's, -1 for none.

    Where that is not possible, as below a threaded cgroup, the process goes without.
    """
    with suppress(OSError):
        _move_into(cluster, name)


def _move_into(cluster: int, name: str) -> None:
    """Make it again if others remove it before this process is in it, as `enter_cluster_cgroup` says.

    Raises FileNotFoundError when the cluster's own was removed, other OSErrors when no process may enter.
    """
    while True:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=cluster)
        try:
            with open(os.open(f"{name}/cgroup.procs", os.O_WRONLY, dir_fd=cluster), "w") as procs:
                procs.write("0")
            return
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENODEV):
                raise


def remove_cluster_cgroup(path: str) -> None:
    """All of it, once its last process has ended: the kernel may take a moment more."""
    deadline = time.monotonic() + 5.0
    while path and not remove_cgroup(path) and time.monotonic() < deadline:
        time.sleep(0.01)

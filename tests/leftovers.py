"""What a test can leave behind: threads, processes, sockets and namespaces. Each such test fails, by its own name."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PATIENCE_SECONDS = 30.0
"""For what has been told to end and has not ended yet."""
_PR_SET_CHILD_SUBREAPER = 36
_HANDLES = ("socket:", "cgroup:", "ipc:", "mnt:", "net:", "pid:", "time:", "user:", "uts:")
"""How /proc names open sockets and namespaces."""


@dataclass(frozen=True)
class Present:
    """What belongs to this process at one moment."""

    threads: frozenset[threading.Thread]
    processes: frozenset[int]
    """PIDs of children. With them go the namespaces in which they run."""
    handles: frozenset[str]
    """Open sockets and namespaces as /proc names them, such as "socket:[4711]"."""

    def __bool__(self) -> bool:
        return bool(self.threads or self.processes or self.handles)

    def __sub__(self, earlier: Present) -> Present:
        return Present(
            self.threads - earlier.threads, self.processes - earlier.processes, self.handles - earlier.handles
        )


def adopt_orphans() -> None:
    """Make this process the parent of each of its descendants whose own parent ends. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def present() -> Present:
    """What this process has now; children that have ended are reaped and do not count."""
    return Present(frozenset(threading.enumerate()), frozenset(_children()), frozenset(_handles()))


def left_since(earlier: Present, patience: float | None = None) -> list[str]:
    """What has come since then and does not end by itself, in words. Processes among it are killed."""
    deadline = time.monotonic() + (PATIENCE_SECONDS if patience is None else patience)
    while (new := present() - earlier) and time.monotonic() < deadline:
        time.sleep(0.01)
    found = [f"the thread {thread.name}, at {_place(thread)}" for thread in new.threads]
    found += [f"the process {pid}: {_command(pid)}" for pid in new.processes]
    found += [_handle(name) for name in new.handles]
    for pid in new.processes:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found


def _children() -> list[int]:
    found = []
    for task in os.listdir("/proc/self/task"):
        with suppress(FileNotFoundError), open(f"/proc/self/task/{task}/children") as file:
            found += [int(pid) for pid in file.read().split()]
    return [pid for pid in found if not _reaped(pid)]


def _reaped(pid: int) -> bool:
    """Whether this child has ended; it is no zombie after that."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _handles() -> list[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [name for name in found if name.startswith(_HANDLES)]


def _place(thread: threading.Thread) -> str:
    """Where a thread stands."""
    frame = sys._current_frames().get(thread.ident or 0)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "its end"


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")[:300]
    except OSError:
        return "it has ended meanwhile"


def _handle(name: str) -> str:
    return f"the socket {name}: {_address(name)}" if name.startswith("socket:") else f"the open namespace {name}"


def _address(name: str) -> str:
    """What the kernel's tables say about a socket."""
    inode = name.strip("socket:[]")
    for table in ("unix", "tcp", "tcp6", "udp"):
        for line in Path(f"/proc/net/{table}").read_text(errors="replace").splitlines():
            if inode in line.split():
                return f"{table} {line.strip()}"
    return "not connected"

"""Where clients find the supervisors of this machine: a socket for each, in a directory that only root can enter."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator

from agent.errors import SystemFault, UsageError
from agent.machine import unix_socket
from agent.workbench.local.cgroups import remove_left_cgroups

DIRECTORY = "/run/a4-agent-local"
_BACKLOG = 128


def running_clusters() -> list[str]:
    """Names of the local clusters that run on this machine. What killed ones have left is removed."""
    with _directory() as directory:
        running = _live(directory)
        remove_left_cgroups(running)
        return running


def listen(name: str) -> socket.socket:
    """A socket that clients of the cluster `name` find. Raises UsageError when another cluster has that name."""
    with _directory() as directory:
        if name in _live(directory):
            hint = f"take another --name, or end it: a4-agent local down --name {name}"
            raise UsageError(f"a local cluster named {name} runs already", hint)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        listener.bind(_address(directory, name))
        listener.listen(_BACKLOG)
        return listener


def connect(name: str) -> socket.socket:
    """A connection to the supervisor of the cluster `name`. Raises OSError when there is none."""
    with _directory() as directory:
        return unix_socket.connect(_address(directory, name))


@contextlib.contextmanager
def _directory() -> Iterator[int]:
    """A descriptor of the directory, which is made when it is missing. Raises SystemFault."""
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(DIRECTORY, 0o700)
        directory = os.open(DIRECTORY, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        what = f"{DIRECTORY}, where local clusters have their sockets, cannot be used: {error.strerror}"
        raise SystemFault(what, "it must be a directory of root's own in a writable /run") from error
    try:
        seen = os.fstat(directory)
        if seen.st_uid != os.geteuid() or seen.st_mode & 0o077:
            raise SystemFault(f"{DIRECTORY} is open to others than root", "find out who made it, then remove it")
        yield directory
    finally:
        os.close(directory)


def _live(directory: int) -> list[str]:
    """Names that somebody listens at; until the directory is closed, no name comes or goes."""
    fcntl.flock(directory, fcntl.LOCK_EX)  # for a moment: nobody who holds it waits for anything
    return sorted(name for name in os.listdir(directory) if _is_live(directory, name))


def _is_live(directory: int, name: str) -> bool:
    """Whether somebody listens there; the socket of a process that has ended is removed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(_address(directory, name))
        except ConnectionRefusedError:
            os.unlink(name, dir_fd=directory)
            return False
        except BlockingIOError:
            pass  # others wait there already
        return True


def _address(directory: int, name: str) -> str:
    return f"/proc/self/fd/{directory}/{name}"

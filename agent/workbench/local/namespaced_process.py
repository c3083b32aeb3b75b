"""Starting processes in namespaces: the first of a pod, further ones in it, helpers of the supervisor.

All are children of the supervisor, also those in other PID namespaces: it sees every exit code itself.
Their namespaces lie within that of the supervisor, which is PID 1 there: the kernel ends them all with it.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import socket
import sys
import termios
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, NoReturn

from agent.workbench.local.syscalls import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUTS,
    die_with_parent,
    pid_outside,
    setns,
    unshare,
)

_OTHERS = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET
# Python ignores the first two, nohup SIGHUP, and what is ignored stays so in the program.
_RESET = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM]


class Program(NamedTuple):
    """What a process becomes when its surroundings stand."""

    argv: Sequence[str]
    env: Mapping[str, str]
    directory: str = "/"
    limit: Callable[[], None] | None = None
    """Takes rights from the process that is about to become the program."""

    def become(self, files_limit: int, tell: Callable[[str], None] = lambda why: None) -> NoReturn:
        """Where that is not possible, tell why, say it and end 127 or 126, as a shell would."""
        for number in _RESET:
            signal.signal(number, signal.SIG_DFL)
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files_limit, hard))
        what = self.directory
        try:
            os.chdir(what)
            what = self.argv[0]
            if self.limit:
                self.limit()
            os.execvpe(what, list(self.argv), dict(self.env))
        except OSError as error:
            why = f"{what}: {error.strerror}"
            tell(why)
            os.write(2, f"cannot start {why}\n".encode())
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def fork_holder() -> int:
    """Go on in a child that is PID 1 of a new PID namespace and ends with this process; 0 there, its number here."""
    parent = pid_outside()
    unshare(CLONE_NEWPID)
    child = os.fork()
    if child == 0:
        die_with_parent(parent)
        # A PID 1 is deaf to signals that it does not handle.
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, lambda number, frame: sys.exit(128 + number))
    return child


class Forker:
    """Forks this single-threaded process into PID namespaces."""

    def __init__(self) -> None:
        self._own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self.files_limit, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        # Four descriptors per pod: a thousand pods would not fit into the usual 1,024.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def fork(self, child: Callable[[], None]) -> int:
        """A child in this PID namespace."""
        pid = os.fork()
        if pid == 0:
            try:
                child()
            except BaseException:
                traceback.print_exc(file=sys.stderr)
                sys.stderr.flush()
            finally:
                os._exit(1)
        return pid

    def fork_first(self, child: Callable[[], None]) -> int:
        """A child that is PID 1 of a new PID namespace."""
        # It is the namespace of children from here on, so the own one has to be put back.
        unshare(CLONE_NEWPID)
        try:
            return self.fork(child)
        finally:
            setns(self._own, CLONE_NEWPID)

    def fork_beside(self, pidfd: int, child: Callable[[], None]) -> int:
        """A child in the PID namespace of another process."""
        setns(pidfd, CLONE_NEWPID)
        try:
            return self.fork(child)
        finally:
            setns(self._own, CLONE_NEWPID)


def _set_streams(streams: Sequence[int]) -> None:
    """Make these descriptors 0, 1 and 2."""
    # First above 2, so that none is overwritten before it is copied.
    copies = [fcntl.fcntl(stream, fcntl.F_DUPFD_CLOEXEC, 3) for stream in streams]
    for number, copy in enumerate(copies):
        os.dup2(copy, number)


def first_process(
    build: Callable[[], list[int]], program: Program, streams: Sequence[int], status: socket.socket, files_limit: int
) -> None:
    """Child: build what shall be around the program, report the start with the descriptors that `build` returns,
    become the program or report why that is not possible."""

    def tell(why: str) -> None:
        status.send(json.dumps({"missing": why}).encode())

    os.setsid()
    pid = pid_outside()
    try:
        built = build()
    except Exception as error:
        status.send(json.dumps({"error": str(error)}).encode())
        os._exit(1)
    _set_streams(streams)
    started = {"started": time.time(), "monotonic": time.monotonic(), "pid": pid}
    socket.send_fds(status, [json.dumps(started).encode()], built)
    program.become(files_limit, tell)


def further_process(
    pidfd: int, program: Program, streams: Sequence[int], files_limit: int, client: socket.socket
) -> None:
    """Child: join all namespaces of the pod's first process and become the program; without streams on a terminal of
    the pod's own, whose other end goes to the client."""
    setns(pidfd, _OTHERS)
    os.setsid()
    if streams:
        _set_streams(streams)
    else:
        master, slave = os.openpty()
        socket.send_fds(client, [b'{"terminal": true}\n'], [master])
        os.close(master)
        _set_streams([slave, slave, slave])
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    program.become(files_limit)

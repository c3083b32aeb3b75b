"""A container as its holder sees it: its first process, from its start to its end, and what it prints."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable
from typing import NamedTuple

from agent.local.channel import Message
from agent.local.namespaced_process import Forker, Program, first_process
from agent.machine.loop import READ, Loop


class ContainerPlan(NamedTuple):
    """What a container's first process does before its program, and the program."""

    enter: Callable[[], None]
    """Enters cgroups, before any memory is charged."""
    build: Callable[[], list[int]]
    """Builds all around it; returns descriptors of its mount namespace and of its root directory."""
    program: Program


class Events(NamedTuple):
    """Who is told what has become of a container. Each is called once, `built` not where it cannot be built."""

    built: Callable[[Message, list[int]], None]
    """When its program is about to start: its number and times, and what `ContainerPlan.build` returned."""
    begun: Callable[[Message], None]
    """When its program has started; else the message has `error` (it cannot be built) or `missing`."""
    ended: Callable[[int], None]
    """Its exit code, -n after signal n: the kernel has ended all its other processes."""


class Container:
    """Starts with its making. `out` and `err` are the pipes that bring what it prints; the caller closes them."""

    def __init__(self, loop: Loop, forker: Forker, plan: ContainerPlan, events: Events) -> None:
        self._loop = loop
        self._events = events
        self._status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.out, out_end = os.pipe()
        self.err, err_end = os.pipe()
        streams = (os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), out_end, err_end)
        limit = forker.files_limit

        def child() -> None:
            plan.enter()
            first_process(plan.build, plan.program, streams, theirs, limit)

        self._child = forker.fork_first(child)
        theirs.close()
        for stream in streams:
            os.close(stream)
        self.pidfd = os.pidfd_open(self._child)
        """-1 once it has ended: its number may be another process by then."""
        loop.watch(self._status.fileno(), READ, self._on_status)
        loop.watch(self.pidfd, READ, self._on_exit)

    def signal(self, number: int) -> None:
        """Nothing if it has ended."""
        if self.pidfd >= 0:
            signal.pidfd_send_signal(self.pidfd, number)

    def _on_status(self) -> None:
        """The socket ends when the first process becomes the program."""
        data, descriptors, _, _ = socket.recv_fds(self._status, 65536, 2)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)  # recv_fds ignores MSG_CMSG_CLOEXEC
        message = json.loads(data) if data else {}
        if "started" in message:
            self._events.built(message, descriptors)
            return
        self._loop.forget(self._status.fileno())
        self._status.close()
        self._events.begun(message)

    def _on_exit(self) -> None:
        self._loop.forget(self.pidfd)
        os.close(self.pidfd)
        self.pidfd = -1
        _, status = os.waitpid(self._child, 0)
        self._events.ended(os.waitstatus_to_exitcode(status))


def shell_code(code: int) -> int:
    """An exit code as a shell has it: 128 + n after signal n."""
    return code if code >= 0 else 128 - code

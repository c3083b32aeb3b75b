"""A container as its holder sees it: its first process, from start to end, what that prints, and further commands."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from agent.machine.loop import READ, Loop
from agent.workbench.local.channel import Message, MessageChannel
from agent.workbench.local.namespaced_process import Forker, Program, first_process, further_process


class Events(NamedTuple):
    """Who is told what becomes of a container. `begun` and `ended` are called once."""

    begun: Callable[[Message, list[int]], None]
    """When its program has started, its number and times, and what `build` returned; else with `error` (it cannot be
    built) or `missing`."""
    printed: Callable[[str, bytes], None]
    """On `out` or `err`."""
    ended: Callable[[int], None]
    """At last, its exit code, -n after signal n: the kernel has ended all its other processes."""


class Container:
    """Starts with its making.

    `enter` enters its cgroups, before any memory is charged; `build` builds all around its first process, and returns
    descriptors of its mount namespace and of its root directory.
    """

    def __init__(
        self,
        loop: Loop,
        forker: Forker,
        enter: Callable[[], None],
        build: Callable[[], list[int]],
        program: Program,
        events: Events,
    ) -> None:
        self._loop = loop
        self._forker = forker
        self._enter = enter
        self._events = events
        self._status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        streams = (os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), out_end, err_end)
        limit = forker.files_limit

        def child() -> None:
            enter()
            first_process(build, program, streams, theirs, limit)

        self._child = forker.fork_first(child)
        theirs.close()
        for stream in streams:
            os.close(stream)
        self.pidfd = os.pidfd_open(self._child)
        """-1 once it has ended: its number may be another process by then."""
        self._start: Message = {}
        self._files: list[int] = []
        self._code = 0
        self._awaited = 4
        """How many of these have not come to their end: its start, its first process, the two pipes."""
        loop.watch(self._status.fileno(), READ, self._on_status)
        loop.watch(self.pidfd, READ, self._on_exit)
        loop.watch(out, READ, lambda: self._on_output("out", out))
        loop.watch(err, READ, lambda: self._on_output("err", err))

    def signal(self, number: int) -> None:
        """Nothing if it has ended."""
        if self.pidfd >= 0:
            signal.pidfd_send_signal(self.pidfd, number)

    def run(self, program: Program, streams: Sequence[int], channel: MessageChannel) -> None:
        """Start a command in it, pass the client's signals on, answer with its exit code. Without streams it has a
        terminal of the container's own, whose other end the client gets. Raises ProcessLookupError when it has ended.
        """
        if self.pidfd < 0:
            raise ProcessLookupError
        pidfd, enter, limit = self.pidfd, self._enter, self._forker.files_limit

        def child() -> None:
            enter()
            further_process(pidfd, program, streams, limit, channel.socket)

        pid = self._forker.fork_beside(pidfd, child)
        ended = False

        def on_exit() -> None:
            nonlocal ended
            ended = True
            channel.send({"code": shell_code(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))})

        def tell(number: int, group: bool) -> None:
            if ended:
                return
            # Not reaped yet, so the number is still its own.
            try:
                (os.killpg if group else os.kill)(pid, number)
            except ProcessLookupError:  # it leads no group yet: the command has not begun
                os.kill(pid, signal.SIGKILL)

        channel.on_more = lambda message: tell(int(message["signal"]), bool(message.get("group")))
        channel.on_close = lambda: tell(signal.SIGHUP, True)
        self._loop.on_end(pid, on_exit)

    def _on_status(self) -> None:
        """The socket ends when the first process becomes the program."""
        data, descriptors, _, _ = socket.recv_fds(self._status, 65536, 2)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)  # recv_fds ignores MSG_CMSG_CLOEXEC
        message = json.loads(data) if data else {}
        self._start, self._files = self._start | message, self._files + descriptors
        if "started" in message:
            return
        self._loop.forget(self._status.fileno())
        self._status.close()
        self._events.begun(self._start, self._files)
        self._end_one()

    def _on_output(self, stream: str, pipe: int) -> None:
        data = b""
        with suppress(OSError):
            data = os.read(pipe, 65536)
        if data:
            self._events.printed(stream, data)
            return
        self._loop.forget(pipe)
        os.close(pipe)
        self._end_one()

    def _on_exit(self) -> None:
        self._loop.forget(self.pidfd)
        os.close(self.pidfd)
        self.pidfd = -1
        _, status = os.waitpid(self._child, 0)
        self._code = os.waitstatus_to_exitcode(status)
        self._end_one()

    def _end_one(self) -> None:
        """The container has ended when its exit code is known, its start has been told, and all that it printed."""
        self._awaited -= 1
        if not self._awaited:
            self._events.ended(self._code)


def shell_code(code: int) -> int:
    """An exit code as a shell has it: 128 + n after signal n."""
    return code if code >= 0 else 128 - code

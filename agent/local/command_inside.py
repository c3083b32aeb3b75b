"""A command that a client runs in a container."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import NamedTuple

from agent.local.channel import Message, MessageChannel
from agent.local.container import shell_code
from agent.local.namespaced_process import Forker, Program, further_process
from agent.machine.loop import Loop


class Given(NamedTuple):
    """Where a command runs, and for whom."""

    channel: MessageChannel
    pidfd: int
    """The container's first process."""
    streams: Sequence[int]
    terminal: bool
    """Instead of the streams, it has a terminal of the container's own, whose other end the client gets."""
    enter: Callable[[], None]
    """Enters the container's cgroups."""


def start_command(loop: Loop, forker: Forker, program: Program, given: Given) -> None:
    """Start it, pass signals on to it, answer with its exit code. Raises ProcessLookupError in an ended container."""
    channel, pidfd, streams, limit = given.channel, given.pidfd, given.streams, forker.files_limit

    def child() -> None:
        given.enter()
        further_process(pidfd, program, streams, limit, channel.socket if given.terminal else None)

    pid = forker.fork_beside(pidfd, child)
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

    def on_more(message: Message) -> None:
        tell(int(message["signal"]), bool(message.get("group")))

    channel.on_more = on_more
    channel.on_close = lambda: tell(signal.SIGHUP, True)
    loop.on_end(pid, on_exit)

"""The guard of a run's processes on this pod, agent.machine.guard, as the agent sees it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from agent.machine.api import GuardSaid, RunMarks
from agent.machine.helper_process import start_module
from agent.machine.loop import AGAIN_SECONDS, Loop
from agent.machine.stream import LineStream


class Guarding:
    """An agent.machine.api.GuardProcess."""

    def __init__(self, loop: Loop, marks: RunMarks, deadline: float, said: Callable[[GuardSaid], None]) -> None:
        """Raises OSError."""
        words = (repr(deadline), marks.run, str(marks.group), marks.cgroup)
        self._process = start_module("agent.machine.guard", *words)
        assert self._process.stdin is not None and self._process.stdout is not None
        self.pid = self._process.pid
        self._loop = loop
        self._said = said
        self._stream = LineStream(loop, self._process.stdout, self._process.stdin)
        self._stream.receive(self._line, lambda reason: self._gone())

    def until(self, deadline: float) -> None:
        self._stream.send(f"{deadline!r}\n".encode())

    def close(self) -> None:
        """Killed, so that one that stands still does not take what comes later for what it guards."""
        if self._stream.is_open:
            self._stream.close()
            self._end()

    def _line(self, line: bytes) -> None:
        self._said("ready" if line == b"ready" else "passed")

    def _gone(self) -> None:
        self._end()
        self._said("gone")

    def _end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)  # its status is not taken yet: nobody else has its number
        self._await_end()

    def _await_end(self) -> None:
        def ended() -> None:
            self._process.wait()

        try:
            self._loop.on_end(self.pid, ended)
        except OSError:  # too many files are open
            self._loop.later(AGAIN_SECONDS, self._await_end)

"""The process that stores files where they may hang, entrypoints/keep-results.py."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from agent.machine import files
from agent.machine.helper_process import start_helper
from agent.machine.loop import AGAIN_SECONDS, Loop
from agent.machine.stream import LineStream
from agent.mounts import escaped, parse_mounts


@cache
def mount_points() -> tuple[str, ...]:
    """Where something was mounted when this agent first asked: a mount that has gone since is missed."""
    return tuple(mount.point for mount in parse_mounts(files.read("/proc/self/mountinfo") or ""))


def mount_of(directory: str, points: Sequence[str]) -> str:
    """The innermost of these mount points that `directory` lies on, by its name alone: nothing is asked of it."""
    path = os.path.abspath(directory)
    return max((point for point in points if f"{path}/".startswith(f"{point.rstrip('/')}/")), key=len, default="/")


class Keeper:
    """An agent.machine.api.KeeperProcess.

    `heard` gets the words of each line, `ended` this object and the exit status when the process has ended, however
    that came.
    """

    def __init__(
        self,
        loop: Loop,
        directory: str,
        number: int,
        heard: Callable[[Sequence[str]], None],
        ended: Callable[[Any, int], None],
        base: str = "",
    ) -> None:
        """Raises OSError."""
        mount = escaped(mount_of(directory, mount_points()))
        self._process = start_helper("keep-results.py", mount, base or directory, directory, str(number))
        assert self._process.stdin is not None and self._process.stdout is not None
        self._loop = loop
        self._ended = ended
        self._stream = LineStream(loop, self._process.stdout, self._process.stdin)
        self._stream.receive(lambda line: heard(json.loads(line)), lambda reason: self._await_end())

    def send(self, *words: str) -> None:
        """Give it a command. What is sent to a process that is gone is lost: its end is told."""
        self._stream.send(json.dumps(words).encode() + b"\n")

    def close(self, *, kill: bool) -> None:
        """Nothing more is sent or heard. Without `kill` it ends by itself."""
        if kill and self._process.returncode is None:
            os.kill(self._process.pid, signal.SIGKILL)  # Popen.kill would take the status of one that has just ended
        if self._stream.is_open:
            self._stream.close()
            self._await_end()

    def _await_end(self) -> None:
        """Only now: what it said last still stands in the pipe when it has gone."""
        try:
            self._loop.on_end(self._process.pid, lambda: self._ended(self, self._process.wait()))
        except OSError:  # too many files are open
            self._loop.later(AGAIN_SECONDS, self._await_end)

"""The process that stores files where they may hang, entrypoints/keep-results.py, and the pipes to it.

A thread would not do: one that waits for a dead server in the kernel keeps its whole process from ending.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from functools import cache

from agent.machine import files
from agent.machine.loop import READ, Loop
from agent.machine.stream import LineStream
from agent.paths import shipped

KEPT_VARIABLES = ("LD_LIBRARY_PATH",)
"""What a Python may need to start at all."""


def helper_environment() -> dict[str, str]:
    """That of processes that touch such directories: all other variables stay away, the mark A4_RUN among them."""
    return {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}


@cache
def mount_points() -> tuple[str, ...]:
    """Where something was mounted when this agent first asked: a mount that has gone since is missed."""
    table = files.read("/proc/self/mountinfo") or ""
    return tuple(line.split(" ", 5)[4] for line in table.splitlines())


def mount_of(directory: str, points: Sequence[str]) -> str:
    """The innermost of these mount points that `directory` lies on, by its name alone: nothing is asked of it.

    All as mountinfo writes it, with octal numbers for spaces and the like.
    """
    path = os.path.abspath(directory).translate({ord(char): f"\\{ord(char):03o}" for char in " \t\n\\"})
    return max((point for point in points if f"{path}/".startswith(f"{point.rstrip('/')}/")), key=len, default="/")


class KeeperProcess:
    """Implements agent.machine.api.KeeperProcess. `heard` gets the words of each line, `ended` its exit status."""

    def __init__(
        self,
        loop: Loop,
        python: str,
        directory: str,
        number: int,
        heard: Callable[[Sequence[str]], None],
        ended: Callable[[KeeperProcess, int], None],
    ) -> None:
        """Raises OSError."""
        program, mount = shipped("entrypoints", "keep-results.py"), mount_of(directory, mount_points())
        self._process = subprocess.Popen(
            [python, "-I", "-S", program, mount, directory, str(number)],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=helper_environment(),
            cwd="/",
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._loop = loop
        self._ended = ended
        self._stream = LineStream(loop, self._process.stdout, self._process.stdin)
        self._stream.receive(lambda line: heard(json.loads(line)), lambda reason: self._await_end())

    def send(self, *words: str) -> None:
        """Give it a command."""
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
        pidfd = os.pidfd_open(self._process.pid)
        self._loop.watch(pidfd, READ, lambda: self._exited(pidfd))

    def _exited(self, pidfd: int) -> None:
        self._loop.forget(pidfd)
        os.close(pidfd)
        self._ended(self, self._process.wait())

"""A process of the agent's own that touches files where they may hang, and the pipes to it.

A thread would not do: one that waits for a dead server in the kernel keeps its whole process from ending.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

from agent.machine.loop import AGAIN_SECONDS, Loop
from agent.machine.stream import LineStream
from agent.paths import own_program

KEPT_VARIABLES = ("LD_LIBRARY_PATH",)
"""What a Python may need to start at all."""


def helper_environment() -> dict[str, str]:
    """That of processes that touch such directories: all other variables stay away, the mark A4_RUN among them."""
    return {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}


def start_helper(
    program: str, *arguments: str, stdin: int = subprocess.PIPE, stderr: int = subprocess.DEVNULL, **options: Any
) -> subprocess.Popen[bytes]:
    """A program of entrypoints/ in a session of its own, with pipes to it. Raises OSError."""
    return subprocess.Popen(
        own_program(program, *arguments),
        bufsize=0,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=helper_environment(),
        cwd="/",
        start_new_session=True,
        **options,
    )


class HelperProcess:
    """Runs a program of entrypoints/ that reads and writes JSON, one value per line.

    `heard` gets each value that it says, `ended` this object and the exit status when it has ended, however that came.
    """

    def __init__(
        self,
        loop: Loop,
        program: str,
        arguments: Sequence[str],
        heard: Callable[[Any], None],
        ended: Callable[[Any, int], None],
    ) -> None:
        """Raises OSError."""
        self._process = start_helper(program, *arguments)
        assert self._process.stdin is not None and self._process.stdout is not None
        self.pid = self._process.pid
        self._loop = loop
        self._ended = ended
        self._stream = LineStream(loop, self._process.stdout, self._process.stdin)
        self._stream.receive(lambda line: heard(json.loads(line)), lambda reason: self._await_end())

    def send(self, *words: Any) -> None:
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
            self._loop.on_end(self.pid, lambda: self._ended(self, self._process.wait()))
        except OSError:  # too many files are open
            self._loop.later(AGAIN_SECONDS, self._await_end)

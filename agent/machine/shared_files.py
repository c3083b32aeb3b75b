"""Files in a directory that all pods share, through a process of its own: entrypoints/share-files.py.

The file server may hang, and then whoever asks it something hangs too, in the kernel, where no signal is taken. The
process that hangs is given up after its time and another one is started for the next command.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from math import inf
from typing import Any, NamedTuple, TypeVar

from agent.machine.api import SERVER_SECONDS
from agent.machine.helper_process import start_helper

PROGRAM = "share-files.py"
Result = TypeVar("Result")


class SharedAnswer(NamedTuple):
    """What came of a command: `why` is empty when it was done."""

    value: Any = None
    why: str = ""


class SharedCommand(NamedTuple):
    """A command, as share-files.py takes it, to which an answer counts only until a time of the monotonic clock."""

    words: tuple[Any, ...]
    by: float = inf


Steps = Generator[SharedCommand | float, SharedAnswer, Result]
"""What is done in the directory one thing after the other: commands, whose answers it gets, and seconds to wait."""


def look(folder: str, beginnings: Iterable[str] = (), known: Iterable[str] = (), by: float = inf) -> SharedCommand:
    """The names in a folder, "names"; contents of those with such beginnings but not `known`, "texts"; and of those
    that have none why, "problems". A folder that is not there has no names."""
    return SharedCommand(("look", folder, list(beginnings), list(known)), by)


def carry_out(
    steps: Steps[Result], ask: Callable[[SharedCommand], SharedAnswer], wait: Callable[[float], object] = time.sleep
) -> Result:
    """Do them all; returns what they return."""
    answer = SharedAnswer()
    try:
        step = next(steps)
        while True:
            if isinstance(step, SharedCommand):
                answer = ask(step)
            else:
                wait(step)
            step = steps.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result


class SharedFiles:
    """Asks the process, for several threads one after the other. It is started by the first command."""

    def __init__(self, directory: str, answer_seconds: float = SERVER_SECONDS) -> None:
        self._directory = directory
        self.answer_seconds = answer_seconds
        """How long one command may take."""
        self._asking = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, asked: SharedCommand) -> SharedAnswer:
        # Another thread is answered, or gives up, within its time.
        if not self._asking.acquire(timeout=max(0.0, min(asked.by - time.monotonic(), 2 * self.answer_seconds))):
            return SharedAnswer(why="no answer in time")
        try:
            return self._ask(asked)
        finally:
            self._asking.release()

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0)  # one that hangs in the kernel does not even take SIGKILL
        assert process.stdin is not None and process.stdout is not None
        with suppress(OSError):
            process.stdin.close()
        process.stdout.close()

    def _ask(self, asked: SharedCommand) -> SharedAnswer:
        try:
            process = self._process = self._process or start_helper(PROGRAM, self._directory)
        except OSError as error:
            return SharedAnswer(why=f"{sys.executable} cannot be started: {error.strerror}")
        assert process.stdin is not None and process.stdout is not None
        told = None
        try:
            process.stdin.write(json.dumps(asked.words).encode() + b"\n")
            told = json.loads(self._line(process.stdout.fileno(), asked.by))
        except TimeoutError:
            return SharedAnswer(why=f"no answer for {self.answer_seconds:g} s")
        except (OSError, EOFError):
            return SharedAnswer(why="the process that does it was killed")
        finally:
            if told is None:
                self.close()  # also when a signal has come: what it still says would answer the next command
        return SharedAnswer(told.get("value"), told.get("why", ""))

    def _line(self, fd: int, by: float) -> bytes:
        """Raises TimeoutError, EOFError."""
        until, line = min(by, time.monotonic() + self.answer_seconds), b""
        while not line.endswith(b"\n"):
            if not select.select([fd], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError
            data = os.read(fd, 65536)
            if not data:
                raise EOFError
            line += data
        return line

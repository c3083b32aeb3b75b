"""The directory that all pods share, for code that asks it one thing after the other and waits for each answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from agent.decide.sync.mounts import DirectoryMount, refusal
from agent.errors import DirectoryUnusable
from agent.lifecycle.waits import PROBE_SECONDS
from agent.machine.api import SERVER_SECONDS
from agent.machine.loop import Loop
from agent.machine.shared_files import ProcessFiles, SharedAnswer


class SharedDirectory:
    """Works through a process of its own, which may hang with the file server and is given up then.

    `called` is what messages call the directory. Whose loop waits, and how, is said by `_call`.
    """

    def __init__(self, loop: Loop, directory: str, called: str) -> None:
        self.directory = directory
        self._called = called
        self._loop = loop
        self._files = ProcessFiles(loop, directory, PROBE_SECONDS)

    def now(self) -> float:
        return time.monotonic()

    def later(self, seconds: float, action: Callable[[], None]) -> Any:
        return self._loop.later(seconds, action)

    def open(self) -> None:
        """Raises DirectoryUnusable for a directory that cannot hold what pods tell each other.

        What is mounted is judged first, and only then something is written: a bucket is refused untouched.
        """
        mount = DirectoryMount(**self._ask(self._files.survey))
        for seen in (mount, mount._replace(links=self._ask(self._files.try_))):
            why, remedy = refusal(self.directory, seen)
            if why:
                raise DirectoryUnusable(why, remedy)
        self._files.answer_seconds = SERVER_SECONDS

    def _unusable(self, why: str) -> DirectoryUnusable:
        what = f"{self._called} cannot be used: {why}"
        return DirectoryUnusable(what, "it must be there, and writable, in every pod of the job")

    def _ask(self, command: Callable[..., None], *arguments: Any) -> Any:
        """The value of one command. Raises DirectoryUnusable."""
        answer: SharedAnswer = self._call(lambda done: command(*arguments, done))
        if answer.why:
            raise self._unusable(answer.why)
        return answer.value

    def _call(self, begin: Callable[[Callable[[Any], None]], None]) -> Any:
        """Let the loop begin something, and wait for what it is called with."""
        raise NotImplementedError

"""Files in a directory that all pods share, through a process of its own: entrypoints/share-files.py.

The file server may hang, and then whoever asks it something hangs too, in the kernel, where no signal is taken. The
process that hangs is given up after its time and another one is started for the next command.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from agent.machine.api import SERVER_SECONDS
from agent.machine.helper_process import HelperProcess
from agent.machine.loop import Loop, LoopTimer
from agent.machine.stream import NO_LIMIT

PROGRAM = "share-files.py"


class SharedAnswer(NamedTuple):
    """What came of a command: `why` is empty when it was done."""

    value: Any = None
    why: str = ""


Done = Callable[[SharedAnswer], None]


class SharedFiles(Protocol):
    """Commands are done in order; `done` is called later, never from inside the call.

    until: a time of the monotonic clock after which nothing must be shown to others any more.
    """

    def look(self, folder: str, beginnings: Sequence[str], known: Sequence[str], done: Done) -> None:
        """The names in a folder, "names"; contents of those with such beginnings but not `known`, "texts"; and of those
        that have none why, "problems". A folder that is not there has no names."""

    def put(self, folder: str, name: str, text: str, until: float, done: Done) -> None:
        """Write a whole file; the value is the text that is there then, of whoever wrote last."""

    def link(self, folder: str, name: str, text: str, until: float, done: Done) -> None:
        """Write a file if there is none; the value is the text of the one that is there then."""

    def move(self, folder: str, old: str, new: str, until: float, done: Done) -> None:
        """Rename a file."""

    def remove(self, folder: str, names: Sequence[str], done: Done) -> None:
        """Take files, links and empty folders away; missing ones are ignored."""

    def try_(self, done: Done) -> None:
        """Write, link and remove a file; the value is whether there are hard links."""


class Clock(Protocol):
    """Time as the drivers of waits and claims need it: that of a machine, of a loop, or simulated."""

    def now(self) -> float: ...

    def later(self, seconds: float, action: Callable[[], None]) -> Any: ...


class ProcessFiles:
    """Implements SharedFiles. The process is started by the first command."""

    def __init__(self, loop: Loop, directory: str, answer_seconds: float = SERVER_SECONDS) -> None:
        self._loop = loop
        self._directory = directory
        self.answer_seconds = answer_seconds
        """How long one command may take."""
        self._asked: deque[Done] = deque()
        """Who waits for an answer, in the order of the commands."""
        self._process: HelperProcess | None = None
        self._timer: LoopTimer | None = None

    def survey(self, done: Done) -> None:
        """The mount on which the directory lies: "point", "kind" and "source"."""
        self._ask(done, "survey")

    def try_(self, done: Done) -> None:
        self._ask(done, "try")

    def look(self, folder: str, beginnings: Sequence[str], known: Sequence[str], done: Done) -> None:
        self._ask(done, "look", folder, list(beginnings), list(known))

    def put(self, folder: str, name: str, text: str, until: float, done: Done) -> None:
        self._ask(done, "put", folder, name, text, until)

    def link(self, folder: str, name: str, text: str, until: float, done: Done) -> None:
        self._ask(done, "link", folder, name, text, until)

    def move(self, folder: str, old: str, new: str, until: float, done: Done) -> None:
        self._ask(done, "move", folder, old, new, until)

    def remove(self, folder: str, names: Sequence[str], done: Done) -> None:
        self._ask(done, "remove", folder, *names)

    def close(self) -> None:
        """Give up what is under way, and the process. Nobody is told anything any more."""
        self._end()

    def _ask(self, done: Done, *words: Any) -> None:
        self._asked.append(done)
        try:
            process = self._process = self._process or HelperProcess(
                self._loop, PROGRAM, [self._directory], self._heard, self._ended, most_line=NO_LIMIT
            )
        except OSError as error:
            self._give_up(f"{sys.executable} cannot be started: {error.strerror}")
            return
        process.send(*words)
        if len(self._asked) == 1:
            self._expect()

    def _ended(self, process: HelperProcess, status: int) -> None:
        if process is self._process:
            self._give_up("the process that does it was killed")

    def _expect(self) -> None:
        """Wait for the next answer, if one is due, and no longer for the one before it."""
        if self._timer is not None:
            self._timer.cancel()
        if self._asked:
            silence = f"no answer for {self.answer_seconds:g} s"
            self._timer = self._loop.later(self.answer_seconds, lambda: self._give_up(silence))

    def _heard(self, told: Mapping[str, Any]) -> None:
        if not self._asked:
            return
        done = self._asked.popleft()
        self._expect()
        done(SharedAnswer(told.get("value"), told.get("why", "")))

    def _give_up(self, why: str) -> None:
        for done in self._end():
            self._loop.post(partial(done, SharedAnswer(why=why)))

    def _end(self) -> Sequence[Done]:
        """End the process; returns who has had no answer from it."""
        failed, self._asked = self._asked, deque()
        self._expect()
        process, self._process = self._process, None
        if process is not None:
            process.close(kill=True)
        return failed

"""A shared directory as pods see it through their mounts: contents come from caches, names only from listings."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, TypeVar

from agent.machine.shared_files import SharedAnswer, SharedCommand, Steps
from tests.fake.clock import Clock, Event

CACHED_SECONDS = 10.0
MOST_DELAY = 0.2
Result = TypeVar("Result")
Done = Callable[[SharedAnswer], None]
Folders = dict[str, dict[str, str]]
"""What the server has: folder → name → text."""


class FakePod:
    """The clock of one pod, which can stand still: what is due then happens when it goes on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._goes_on = 0.0
        self.dead = False

    def now(self) -> float:
        return self._clock.now

    def pause(self, seconds: float) -> None:
        self._goes_on = self._clock.now + seconds

    def later(self, seconds: float, action: Callable[[], None]) -> Event:
        return self._clock.after(seconds, lambda: self._do(action))

    def _do(self, action: Callable[[], None]) -> None:
        if self.dead:
            return
        if self._clock.now < self._goes_on:
            self._clock.after(self._goes_on - self._clock.now, lambda: self._do(action))
        else:
            action()


class FakeFiles:
    """Stands for SharedFiles of one pod: commands in order, each after a while, with answers that take a while too.

    A command that was sent is done by the server, also while its pod stands still. None is answered once it `hangs`.
    """

    def __init__(self, clock: Clock, pod: FakePod, server: Folders, draw: random.Random) -> None:
        self._clock = clock
        self._pod = pod
        self._server = server
        self._draw = draw
        self._cache: dict[tuple[str, str], tuple[float, str]] = {}
        """(folder, name) → until when which text is taken for the present one."""
        self._free_at = 0.0
        self.hangs = False
        self.refuses = ""
        """Why nothing is written any more; empty: it is."""

    def ask(self, asked: SharedCommand, done: Done) -> None:
        answers: list[SharedAnswer] = []

        def told(answer: SharedAnswer) -> None:
            answers.append(answer)
            if len(answers) == 1:
                done(answer)

        if asked.by < inf:
            self._pod.later(asked.by - self._pod.now(), lambda: told(SharedAnswer(why="no answer in time")))
        verb, *words = asked.words
        getattr(self, "try_" if verb == "try" else verb)(*words, told)

    def look(self, folder: str, beginnings: Sequence[str], known: Sequence[str], done: Done) -> None:
        def act() -> Any:
            there = self._server.get(folder, {})
            beats = [name for name in there if self._draw.random() < 0.05 and name.startswith(("pod.", "beat."))]
            names = [name for name in there if name not in beats]  # renamed while the listing was made
            wanted = [name for name in names if name.startswith(tuple(beginnings)) and name not in known]
            return {"names": names, "texts": {name: self._read(folder, name) for name in wanted}, "problems": {}}

        self._ask(done, act, writes=False)

    def put(self, folder: str, name: str, text: str, until: float, done: Done) -> None:
        def act() -> str:
            self._server.setdefault(folder, {}).update({name: text})
            return text

        self._ask(done, act, until)

    def link(self, folder: str, name: str, text: str, until: float, done: Done) -> None:
        self._ask(done, lambda: self._server.setdefault(folder, {}).setdefault(name, text), until)

    def move(self, folder: str, old: str, new: str, until: float, done: Done) -> None:
        def act() -> None:
            files = self._server[folder]
            files[new] = files.pop(old, files.get(new, ""))

        self._ask(done, act, until)

    def try_(self, done: Done) -> None:
        self._ask(done, lambda: True)

    def _read(self, folder: str, name: str) -> str:
        until, text = self._cache.get((folder, name), (0.0, ""))
        if self._clock.now >= until:
            text = self._server[folder][name]
            self._cache[folder, name] = self._clock.now + CACHED_SECONDS, text
        return text

    def _ask(self, done: Done, act: Callable[[], Any], until: float = float("inf"), *, writes: bool = True) -> None:
        self._free_at = max(self._free_at, self._clock.now) + self._draw.uniform(0, MOST_DELAY)

        def serve() -> None:
            if self.hangs:
                return
            why = "it is too late" if self._clock.now > until else self.refuses if writes else ""
            answer = SharedAnswer(why=why) if why else SharedAnswer(act())
            self._pod.later(self._draw.uniform(0, MOST_DELAY), lambda: done(answer))

        self._clock.after(self._free_at - self._clock.now, serve)


def begin(steps: Steps[Result], pod: FakePod, files: FakeFiles, ended: Callable[[Result], None]) -> None:
    """Carry steps out in a pod; `ended` gets what they return."""

    def go_on(answer: SharedAnswer) -> None:
        try:
            step = steps.send(answer) if begun else next(steps)
        except StopIteration as end:
            ended(end.value)
            return
        begun.append(True)
        if isinstance(step, SharedCommand):
            files.ask(step, go_on)
        else:
            pod.later(step, lambda: go_on(answer))

    begun: list[bool] = []
    go_on(SharedAnswer())

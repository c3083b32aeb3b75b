"""Spools, results directories and connections of a fake machine."""

from __future__ import annotations

import errno
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from agent.machine.api import Channel, KeeperProcess, Piece
from tests.entrypoints import load
from tests.fake.clock import Action

if TYPE_CHECKING:
    from tests.fake.machine import FakeMachine

HEADER = 9
"""Bytes that a frame takes beyond its data."""
KEEPER_SECONDS = 0.01
Ended = Callable[[KeeperProcess, int], None]
ERRNO = {os.strerror(number): number for number in errno.errorcode}


PROGRAM = load("keep-results")


class FakeSpool:
    """Frames in memory, of which the oldest go when there are more than `most`."""

    def __init__(self, most: int = 1_000_000) -> None:
        self.most = most
        self.kept: deque[tuple[int, int, bytes]] = deque()
        """Offset, stream, data."""
        self.end = 0
        self.lost = 0
        self.closed = False

    def append(self, stream: int, data: bytes) -> None:
        if self.closed:
            self.lost += len(data)
            return
        self.kept.append((self.end, stream, data))
        self.end += HEADER + len(data)
        while len(self.kept) > self.most:
            self.kept.popleft()

    def close(self) -> None:
        self.closed = True

    def read(self, offset: int, most: int) -> Piece:
        found, size, after = [], 0, offset
        for start, stream, data in self.kept:
            if start >= offset and (not size or size + len(data) <= most):
                found.append((stream, data))
                size += len(data)
                after = start + HEADER + len(data)
        return Piece(tuple(found), after)


class FakeSegments:
    """A spool as the process that stores it reads it: one segment."""

    def __init__(self, spool: FakeSpool) -> None:
        self._spool = spool

    def firsts(self) -> list[int]:
        return [self._spool.kept[0][0]] if self._spool.kept else []

    def end(self) -> int:
        return self._spool.end

    def frames(self, first: int, at: int, end: int) -> Iterator[bytes]:
        return (data for start, _, data in list(self._spool.kept) if at <= start < end)


class Hangs(BaseException):
    """What was asked of a server that does not answer. Carrying it out late is `action`."""

    def __init__(self, action: Action = lambda: None) -> None:
        super().__init__()
        self.action = action


class FakeStorage:
    """Where results are stored, of all directories of a pod. It outlives the machine."""

    def __init__(self) -> None:
        self.stored: dict[str, str] = {}
        """Path → text."""
        self.storage = ""
        """Why nothing can be stored: `stuck` gives no answer; empty: it can."""
        self.carries_out_late = False
        """What a server was asked for while it was stuck it does when it is not any more."""
        self.room = 1 << 40
        """The largest file that is taken."""
        self.tried: list[str] = []
        """The files that were tried."""
        self.writers: dict[str, set[FakeDirectory]] = {}
        """Which processes tried each."""

    def take_away(self, prefix: str) -> None:
        self.stored = {path: text for path, text in self.stored.items() if not path.startswith(prefix)}

    def do(self, action: Action) -> None:
        if self.storage == "stuck":
            raise Hangs(action)
        if self.storage:
            raise OSError(ERRNO[self.storage], self.storage)
        action()


class FakeDirectory:
    """Stands in for the program's Directory."""

    def __init__(self, storage: FakeStorage, path: str) -> None:
        self._storage = storage
        self._path = path

    def probe(self, name: str, earlier: str) -> str:
        self._storage.do(lambda: None)
        found = any(path.startswith(f"{self._path}/{earlier}/") for path in self._storage.stored)
        return earlier if found else ""

    def store(self, name: str, chunks: Callable[[], Iterable[bytes]], *, new: bool = False) -> None:
        path, text = f"{self._path}/{name}", b"".join(chunks()).decode(errors="surrogateescape")
        self._storage.tried.append(name)
        self._storage.writers.setdefault(name, set()).add(self)
        if len(text) > self._storage.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if new and self._storage.stored.get(path, text) != text:
            raise OSError(errno.EEXIST, "it is there already, and left as it is")
        self._storage.do(lambda: self._storage.stored.update({path: text}))

    def remove(self, prefix: str) -> None:
        start = f"{self._path}/{prefix}"
        self._storage.do(lambda: self._storage.take_away(start))


class FakeKeeperProcess:
    """The real program but for its directory, its spool and its clock."""

    def __init__(
        self, machine: FakeMachine, directory: str, heard: Callable[[Sequence[str]], None], ended: Ended
    ) -> None:
        self._clock, self._post, self._storage = machine.world.clock, machine.post, machine.pod
        self._heard = heard
        self._ended = ended
        self._is_closed = self._is_over = False
        self._hangs: Hangs | None = None
        self._commands: deque[Sequence[str]] = deque()
        spools = machine.spools
        self._program = PROGRAM.ResultsStoring(
            FakeDirectory(machine.pod, directory), self.say, machine.now, lambda path: FakeSegments(spools[path])
        )
        self._tick()

    def send(self, *words: str) -> None:
        self._commands.append(words)
        self._clock.after(KEEPER_SECONDS, self._go_on)

    def close(self, *, kill: bool) -> None:
        self._is_closed = True
        if kill:
            self.end(-9)

    @property
    def is_living(self) -> bool:
        return not self._is_over and not self._is_closed

    def end(self, status: int) -> None:
        """A signal ends it, unless it hangs."""
        if self._is_over or self._hangs:
            return
        self._is_over = True
        self._post(KEEPER_SECONDS, lambda: self._ended(self, status))

    def _tick(self) -> None:
        if self._is_over or (self._is_closed and not self._hangs):
            return
        self._clock.after(PROGRAM.TICK_SECONDS, self._tick)
        self._go_on()

    def _go_on(self) -> None:
        if self._hangs and self._storage.storage != "stuck":
            hung, self._hangs = self._hangs, None
            if self._storage.carries_out_late:
                hung.action()
            if self._is_closed:
                self.end(-9)
        if self._is_over or self._hangs or self._is_closed:
            return
        self.say("alive", "0")
        try:
            while self._commands:
                self._program.obey(*self._commands.popleft())
            self._program.turn()
        except Hangs as hangs:
            self._hangs = hangs

    def say(self, *words: str) -> None:
        self._post(KEEPER_SECONDS, lambda: None if self._is_closed else self._heard(words))


class FakeClient:
    """One connection of a command to the agent of its pod."""

    def __init__(self, machine: FakeMachine, opened: Callable[[Channel], None]) -> None:
        self.machine = machine
        self.answers: dict[int, dict[str, Any]] = {}
        self.closed = False
        self.answered: Callable[[], None] = lambda: None
        """Called when an answer arrives, in the midst of what the agent does."""
        self._line: Callable[[bytes], None] = lambda line: None
        self._ended: Callable[[str], None] = lambda reason: None
        self._last = 0
        opened(self)

    # The agent's side

    def send(self, line: bytes) -> None:
        answer = json.loads(line)
        self.answers[answer["id"]] = answer
        self.answered()

    def close(self) -> None:
        self.closed = True

    def receive(self, line: Callable[[bytes], None], ended: Callable[[str], None]) -> None:
        self._line, self._ended = line, ended

    # The test's side

    def leave(self) -> None:
        self.machine.post(0.001, lambda: self._ended("it has left"))

    def ask(self, op: str, **fields: Any) -> int:
        """Returns the number under which the answer will come."""
        self._last += 1
        self.say(json.dumps({"id": self._last, "op": op, **fields}).encode())
        return self._last

    def say(self, line: bytes) -> None:
        """Whatever it is."""
        self.machine.post(0.001, lambda: self._line(line))

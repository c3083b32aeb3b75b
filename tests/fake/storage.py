"""Spools, results directories and connections of a fake machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from agent.machine.api import Channel, Piece

if TYPE_CHECKING:
    from tests.fake.machine import FakeMachine

HEADER = 5
"""Bytes that a frame takes beyond its data."""
KEEPER_SECONDS = 0.01
NO_ANSWER_SECONDS = 10.0


class FakeSpool:
    """Frames in memory, without a limit."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, int, bytes]] = []
        """Offset, stream, data."""
        self.end = 0
        self.lost = 0
        self.closed = False

    def append(self, stream: int, data: bytes) -> None:
        if self.closed:
            self.lost += len(data)
            return
        self.frames.append((self.end, stream, data))
        self.end += HEADER + len(data)

    def close(self) -> None:
        self.closed = True

    def read(self, offset: int, most: int) -> Piece:
        found, size, after = [], 0, offset
        for start, stream, data in self.frames:
            if start >= offset and (not size or size + len(data) <= most):
                found.append((stream, data))
                size += len(data)
                after = start + HEADER + len(data)
        return Piece(tuple(found), after)

    def text(self, start: int = 0, end: int | None = None) -> str:
        stop = self.end if end is None else end
        return b"".join(data for at, _, data in self.frames if start <= at < stop).decode(errors="replace")


class FakeKeeper:
    """Stores into its pod's `stored`, which outlives the machine; `pod.storage` says how that goes."""

    def __init__(self, machine: FakeMachine, directory: str) -> None:
        self.machine = machine
        self.directory = directory
        self.closed = False

    def write(self, name: str, text: str, done: Callable[[str], None]) -> None:
        self._do(done, lambda: self._put(name, text))

    def copy_spool(self, spool: str, start: int, end: int, name: str, done: Callable[[str], None]) -> None:
        self._do(done, lambda: self._put(name, self.machine.spools[spool].text(start, end)))

    def remove(self, names: Sequence[str], done: Callable[[str], None]) -> None:
        def act() -> None:
            for name in names:
                self.machine.pod.stored.pop(f"{self.directory}/{name}", None)

        self._do(done, act)

    def probe(self, done: Callable[[str], None]) -> None:
        self._do(done, lambda: None)

    def close(self) -> None:
        self.closed = True

    def _put(self, name: str, text: str) -> None:
        self.machine.pod.stored[f"{self.directory}/{name}"] = text

    def _do(self, done: Callable[[str], None], act: Callable[[], None]) -> None:
        how = self.machine.pod.storage
        if how == "stuck":
            self.machine.post(NO_ANSWER_SECONDS, lambda: self._answer(done, "no answer for 10 s"))
        elif how:
            self.machine.post(KEEPER_SECONDS, lambda: self._answer(done, how))
        else:
            act()
            self.machine.post(KEEPER_SECONDS, lambda: self._answer(done, ""))

    def _answer(self, done: Callable[[str], None], problem: str) -> None:
        if not self.closed:
            done(problem)


class FakeClient:
    """One connection of a command to the agent of its pod."""

    def __init__(self, machine: FakeMachine, opened: Callable[[Channel], None]) -> None:
        self.machine = machine
        self.answers: dict[int, dict[str, Any]] = {}
        self.closed = False
        self.answered: Callable[[], None] = lambda: None
        """Called when an answer arrives, in the midst of what the agent does."""
        self._line: Callable[[bytes], None] = lambda line: None
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
        self._line = line

    # The test's side

    def ask(self, op: str, **fields: Any) -> int:
        """Returns the number under which the answer will come."""
        self._last += 1
        line = json.dumps({"id": self._last, "op": op, **fields}).encode()
        self.machine.post(0.001, lambda: self._line(line))
        return self._last

"""The agent's own stdout and stderr, written by a thread: who reads them slowly, or not at all, holds up nothing."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress

from agent.machine.files import write_all
from agent.machine.loop import Action, Loop

HIGH_MARK = 4 * 1024 * 1024
"""With more bytes waiting than this, children's output is left in their pipes."""
LOW_MARK = 1024 * 1024
"""With fewer than this it is taken again."""
MOST_WAITING = 64 * 1024 * 1024
"""More bytes than this are dropped: the agent's own lines, while nobody reads."""
MOST_JOINED = 65536
"""Pieces are joined up to this many bytes: many small ones would take more memory than their bytes."""


class Emitter:
    """Writes to stdout and stderr in the order in which it was asked. Its thread is there while bytes wait."""

    def __init__(self, loop: Loop, stdout: int = 1, stderr: int = 2) -> None:
        self.behind = 0
        """Bytes that wait to be written."""
        self.dropped = 0
        """Bytes that never will be, as too many waited."""
        self._loop = loop
        self._fds = {1: stdout, 2: stderr}
        self._waiting: deque[tuple[int, bytearray]] = deque()
        self._changed = threading.Condition()
        self._relieved: list[Action] = []
        self._unsaid = 0
        """Dropped bytes of which no line has told yet."""
        self._works = False

    @property
    def is_far_behind(self) -> bool:
        return self.behind > HIGH_MARK

    def emit(self, stream: int, data: bytes) -> None:
        """Have `data` written to stdout (1) or stderr (2); never blocks, never raises."""
        with self._changed:
            if self._unsaid or self.behind + len(data) > MOST_WAITING:
                # All that comes until there is room again: what is missing is missing in one place.
                self.dropped += len(data)
                self._unsaid += len(data)
                self._relieve_if_small()
            elif data:
                self._queue(stream, data)

    def on_relief(self, action: Action) -> None:
        """Run `action` in the loop, once, as soon as the backlog is small."""
        with self._changed:
            if self.behind < LOW_MARK:
                self._loop.post(action)
            else:
                self._relieved.append(action)

    def flush(self, seconds: float) -> int:
        """Wait until all is written, at most so long; returns the bytes that are left."""
        with self._changed:
            self._changed.wait_for(lambda: not self.behind, seconds)
            return self.behind

    def _queue(self, stream: int, data: bytes) -> None:
        last_stream, last = self._waiting[-1] if self._waiting else (0, bytearray())
        if stream == last_stream and len(last) + len(data) <= MOST_JOINED:
            last += data
        else:
            self._waiting.append((stream, bytearray(data)))
        self.behind += len(data)
        self._changed.notify_all()
        if not self._works:
            with suppress(RuntimeError):  # no more threads in this pod: the next bytes try again
                threading.Thread(target=self._work, daemon=True).start()
                self._works = True

    def _work(self) -> None:
        while piece := self._next():
            stream, data = piece
            with suppress(OSError):  # a reader that has gone, or a full disk, costs the data and ends nothing
                write_all(self._fds[stream], data)
            with self._changed:
                self.behind -= len(data)
                self._changed.notify_all()
                self._relieve_if_small()

    def _next(self) -> tuple[int, bytearray] | None:
        with self._changed:
            if self._waiting:
                return self._waiting.popleft()
            self._works = False
            return None

    def _relieve_if_small(self) -> None:
        if self.behind >= LOW_MARK:
            return
        if self._unsaid:
            note = f"a4-agent: {self._unsaid} bytes of output are missing here: nobody read it\n"
            self._unsaid = 0
            self._queue(2, note.encode())
        actions, self._relieved = self._relieved, []
        for action in actions:
            self._loop.post(action)

"""The agent's own stdout and stderr, written by a thread: a slow or absent reader blocks nothing.

Children's output waits for a slow reader. For one that takes nothing at all, as behind a terminal in which somebody has
pressed Ctrl-S, it waits 10 s; then it goes on, and what is too much is dropped here.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress

from agent.machine.loop import Action, Loop, LoopTimer
from agent.standard_streams import write_fully

HIGH_MARK = 4 * 1024 * 1024
"""With more bytes waiting than this, children's output is left in their pipes."""
LOW_MARK = 1024 * 1024
"""With fewer than this it is taken again."""
MOST_WAITING = 16 * 1024 * 1024
"""More bytes than this are dropped."""
UNREAD_SECONDS = 10.0
"""When not a byte has been taken for so long, nobody reads."""
WRITTEN_AT_ONCE = 4096
"""Bytes after which is noted that somebody reads: few, for slow terminals."""
MOST_JOINED = 65536
"""Pieces are joined up to this many bytes: many small ones would take more memory than their bytes."""


class Emitter:
    """Writes to stdout and stderr in the order in which it was asked. Its thread is there while bytes wait."""

    def __init__(self, loop: Loop, stdout: int = 1, stderr: int = 2, *, unread_seconds: float = UNREAD_SECONDS) -> None:
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
        self._unread_seconds = unread_seconds
        self._taken = 0.0
        """When bytes were last taken, or came where none were waiting."""
        self._timer: LoopTimer | None = None
        """There while actions wait for relief."""

    @property
    def is_far_behind(self) -> bool:
        """Whether children's output should wait: there is much to be read, and somebody who reads."""
        return self.behind > HIGH_MARK and not self._is_unread()

    def _is_unread(self) -> bool:
        return time.monotonic() - self._taken >= self._unread_seconds

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
        """Run `action` in the loop, once, as soon as the backlog is small or nobody reads. Called in the loop."""
        with self._changed:
            self._relieved.append(action)
            if self.behind < LOW_MARK:
                self._relieve()
            elif self._timer is None:
                self._timer = self._loop.later(self._unread_seconds, self._look_for_a_reader)

    def _look_for_a_reader(self) -> None:
        with self._changed:
            self._timer = None
            if self._is_unread():
                self._relieve()
            elif self._relieved:
                self._timer = self._loop.later(self._unread_seconds, self._look_for_a_reader)

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
        if not self.behind:
            self._taken = time.monotonic()
        self.behind += len(data)
        self._changed.notify_all()
        if not self._works:
            with suppress(RuntimeError):  # no more threads in this pod: the next bytes try again
                threading.Thread(target=self._work, daemon=True).start()
                self._works = True

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._works = False
                    return
                stream, data = self._waiting.popleft()
            with suppress(OSError):  # a reader that has gone, or a full disk, costs the data and ends nothing
                for begin in range(0, len(data), WRITTEN_AT_ONCE):
                    write_fully(self._fds[stream], data[begin : begin + WRITTEN_AT_ONCE])
                    self._taken = time.monotonic()
            with self._changed:
                self.behind -= len(data)
                self._changed.notify_all()
                self._relieve_if_small()

    def _relieve_if_small(self) -> None:
        if self.behind >= LOW_MARK:
            return
        if self._unsaid:
            note = f"a4-agent: {self._unsaid} bytes of output were dropped: nothing was reading\n"
            self._unsaid = 0
            self._queue(2, note.encode())
        self._relieve()

    def _relieve(self) -> None:
        actions, self._relieved = self._relieved, []
        for action in actions:
            self._loop.post(action)

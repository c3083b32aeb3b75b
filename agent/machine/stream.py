"""Lines over descriptors, both ways and without waiting: over sockets, FIFOs and the pipes of a process."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from agent.machine.loop import READ, WRITE, Loop

if TYPE_CHECKING:
    from typing import Protocol

    class StreamEnd(Protocol):
        """What a stream reads or writes, not buffered; a socket is both ends."""

        def fileno(self) -> int: ...

        def close(self) -> None: ...


MOST_BYTES = 4 * 1024 * 1024
"""The longest line, unless a stream says otherwise."""
NO_LIMIT = 1 << 62
READ_BYTES = 65536


class LineTooLong(ValueError):
    """What arrives has no line ends: it does not come from our other side."""


class LineBuffer:
    """Bytes in, whole lines out, without their newline."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The lines completed by `data`. Raises LineTooLong when what is left is longer than a line may be."""
        end, *further = data.split(b"\n")
        self._rest += end  # in place: a long line comes in many pieces
        lines = []
        if further:
            lines = [bytes(self._rest), *further[:-1]]
            self._rest = bytearray(further[-1])
        if len(self._rest) > self._most:
            raise LineTooLong(f"a line of more than {self._most} bytes")
        return lines


def _nobody(*said: object) -> None:
    """Stands in where nobody is to be told."""


class LineStream:
    """Cuts what comes from `source` into lines, and queues what `target` does not take at once.

    Both are closed with the stream. Owners are called by the loop, never from inside a call of theirs. `read` and
    `write` stand in for reading the source and writing the target where that is more than moving bytes. again_seconds:
    after which it is tried again to write, where no descriptor says when; 0: that of the target does.
    """

    def __init__(
        self,
        loop: Loop,
        source: StreamEnd,
        target: StreamEnd,
        *,
        most_line: int = MOST_BYTES,
        most_unsent: int = NO_LIMIT,
        read: Callable[[], bytes] | None = None,
        write: Callable[[bytearray], int] | None = None,
        again_seconds: float = 0.0,
    ) -> None:
        self.is_open = True
        self._loop = loop
        self._in, self._out = source.fileno(), target.fileno()
        self._ends = {self._in: source, self._out: target}
        self._read = read or partial(os.read, self._in, READ_BYTES)
        self._put = write or partial(os.write, self._out)
        self._again_seconds = again_seconds
        self._buffer = LineBuffer(most_line)
        self._unsent = bytearray()
        self._most_unsent = most_unsent
        self._is_heard = True
        """Nothing says that the other side has gone."""
        self._line: Callable[[bytes], None] = _nobody
        self._ended: Callable[[str], None] = _nobody
        self._drained: Callable[[], None] = _nobody
        for fd in self._ends:
            os.set_blocking(fd, False)

    @property
    def is_idle(self) -> bool:
        """Whether the other side has taken everything, and may take more."""
        return self._is_heard and not self._unsent

    def receive(
        self, line: Callable[[bytes], None], ended: Callable[[str], None], drained: Callable[[], None] = _nobody
    ) -> None:
        """Name who gets each line, who is told that the connection is gone, and that what waited has been taken."""
        self._line, self._ended, self._drained = line, ended, drained
        if self.is_open:
            self._loop.watch(self._in, READ, self._readable)

    def send(self, data: bytes) -> None:
        """Queue whole lines. Never blocks, never raises: a broken connection reports its end."""
        if not self.is_open or not self._is_heard:
            return
        waits = bool(self._unsent)
        self._unsent += data
        if not waits:
            self._write()
        if len(self._unsent) > self._most_unsent:
            reason = f"it does not read: {len(self._unsent)} bytes are waiting for it"
            self._drop()
            self._loop.post(lambda: self._ended(reason))

    def close(self) -> None:
        """Drop the connection; no further callback comes from it."""
        self._ended = _nobody
        self._drop()

    def _drop(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._unsent.clear()
        self._line = self._drained = _nobody  # the local cluster's supervisor collects no cycles
        for fd, end in self._ends.items():
            self._loop.forget(fd)
            end.close()

    def _readable(self) -> None:
        try:
            data = self._read()
            lines = self._buffer.feed(data)
        except BlockingIOError:
            return
        except (LineTooLong, OSError) as error:
            self._end(str(error))
            return
        for line in lines:
            if self.is_open:
                self._line(line)
        if not data:
            self._end("the connection was closed")

    def _end(self, reason: str) -> None:
        if self.is_open:
            ended = self._ended
            self.close()
            ended(reason)

    def _writable(self) -> None:
        self._write()
        if self._unsent or not self.is_open:
            return
        self._loop.forget(self._out, WRITE)
        if self._is_heard:
            self._drained()

    def _write(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._put(self._unsent)]
        except BlockingIOError:
            if self._again_seconds:
                self._loop.later(self._again_seconds, self._writable)
            else:
                self._loop.watch(self._out, WRITE, self._writable)
        except OSError:
            self._is_heard = False  # reading will tell, after what it said before
            self._unsent.clear()

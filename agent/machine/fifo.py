"""The worker's end of control channels: FIFOs that entrypoints/control-channel.sh joins to SSH.

A new channel is announced by its number on the FIFO `door`; its data then flows through
`<number>.in` (to us) and `<number>.out` (from us).
"""

from __future__ import annotations

import os
from collections.abc import Callable

from agent.machine import files
from agent.machine.lines import LineBuffer, LineTooLong
from agent.machine.loop import READ, WRITE, Loop


class FifoDoor:
    """Listens for channels in `directory`, which must be empty or left over from an earlier agent."""

    def __init__(self, loop: Loop, directory: str, opened: Callable[[FifoChannel], None]) -> None:
        self._loop = loop
        self._directory = directory
        self._opened = opened
        for name in os.listdir(directory):
            os.unlink(os.path.join(directory, name))
        door = os.path.join(directory, "door")
        os.mkfifo(door, 0o600)
        # Read and write: never at end of file when the last announcer has gone.
        self._fd = os.open(door, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        files.write(os.path.join(directory, "agent.pid"), f"{os.getpid()}\n")  # whole: a session may read it now
        self._numbers = LineBuffer()
        loop.watch(self._fd, READ, self._announced)

    def _announced(self) -> None:
        for number in self._numbers.feed(os.read(self._fd, 4096)):
            if number.isdigit():
                self._open(number.decode())

    def _open(self, number: str) -> None:
        path = os.path.join(self._directory, number)
        try:
            into = os.open(f"{path}.in", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            # Opened for reading too, so that neither side waits for the other to open first.
            out = os.open(f"{path}.out", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return  # the session ended before we got here
        self._opened(FifoChannel(self._loop, into, out))


class FifoChannel:
    """One control channel as the worker sees it."""

    def __init__(self, loop: Loop, into: int, out: int) -> None:
        self._loop = loop
        self._in = into
        self._out = out
        self._buffer = LineBuffer()
        self._unsent = b""
        self._line: Callable[[bytes], None] = lambda line: None
        self._ended: Callable[[str], None] = lambda reason: None

    def receive(self, line: Callable[[bytes], None], ended: Callable[[str], None]) -> None:
        self._line, self._ended = line, ended
        self._loop.watch(self._in, READ, self._readable)

    def send(self, line: bytes) -> None:
        if self._in < 0:
            return
        self._unsent += line
        self._writable()

    def close(self) -> None:
        for fd in (self._in, self._out):
            if fd >= 0:
                self._loop.forget(fd)
                os.close(fd)
        self._in = self._out = -1

    def _readable(self) -> None:
        try:
            data = os.read(self._in, 65536)
            lines = self._buffer.feed(data)
        except BlockingIOError:
            return
        except LineTooLong as error:
            self._end(str(error))
            return
        for line in lines:
            if self._in >= 0:
                self._line(line)
        if not data:
            self._end("the connection was closed")

    def _writable(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._out, self._unsent) :]
        except BlockingIOError:
            self._loop.watch(self._out, WRITE, self._writable)
            return
        self._loop.forget(self._out)

    def _end(self, reason: str) -> None:
        if self._in < 0:
            return
        self.close()
        self._ended(reason)

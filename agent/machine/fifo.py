"""The worker's end of control channels: FIFOs that entrypoints/control-channel.sh joins to SSH.

A new channel is announced by its number on the FIFO `door`; its data then flows through
`<number>.in` (to us) and `<number>.out` (from us).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from io import FileIO

from agent.machine import files
from agent.machine.loop import READ, Loop
from agent.machine.stream import LineBuffer, LineStream


class FifoDoor:
    """Listens for channels in `directory`, which must be empty or left over from an earlier agent."""

    def __init__(self, loop: Loop, directory: str, opened: Callable[[LineStream], None]) -> None:
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
            source = FileIO(f"{path}.in", "r", opener=_without_waiting)
            # Opened for reading too, so that neither side waits for the other to open first.
            target = FileIO(f"{path}.out", "r+", opener=_without_waiting)
        except OSError:
            return  # the session ended before we got here
        self._opened(LineStream(self._loop, source, target))


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)

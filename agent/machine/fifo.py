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


def open_fifos(loop: Loop, directory: str, opened: Callable[[LineStream], None]) -> None:
    """Take channels in `directory`, which must be empty or left over from an earlier agent."""
    for name in os.listdir(directory):
        os.unlink(os.path.join(directory, name))
    door = os.path.join(directory, "door")
    os.mkfifo(door, 0o600)
    # Read and write: never at end of file when the last announcer has gone.
    fd = os.open(door, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    files.write(os.path.join(directory, "agent.pid"), f"{os.getpid()}\n")  # whole: a session may read it now
    numbers = LineBuffer()

    def announced() -> None:
        for number in numbers.feed(os.read(fd, 4096)):
            if number.isdigit() and (stream := _channel(loop, os.path.join(directory, number.decode()))):
                opened(stream)

    loop.watch(fd, READ, announced)


def _channel(loop: Loop, path: str) -> LineStream | None:
    """None when the session has ended before we got here."""
    try:
        source = FileIO(f"{path}.in", "r", opener=_without_waiting)
        # Opened for reading too, so that neither side waits for the other to open first.
        target = FileIO(f"{path}.out", "r+", opener=_without_waiting)
    except OSError:
        return None
    return LineStream(loop, source, target)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)

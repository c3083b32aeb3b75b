"""stdin, stdout and stderr of a command, as whoever started it left them: closed, full, or without a reader."""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from typing import Any, TextIO

from agent.errors import DirectoryUnusable


def set_up() -> None:
    """Open /dev/null for those that are closed, before another file gets their number. What cannot be written raises
    what `refused` returns on stdout; on stderr it is dropped."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = _text(_Stdout(1, "w", closefd=False), sys.stdout, "strict")
    sys.stderr = _text(_Stderr(2, "w", closefd=False), sys.stderr, "backslashreplace")


def refused(error: OSError) -> BrokenPipeError | DirectoryUnusable:
    """What a failed write to stdout means: its reader has gone, or there is no room for it."""
    if isinstance(error, BrokenPipeError):
        return error
    if error.errno == errno.EIO:
        return BrokenPipeError(error.errno, "the terminal is gone")
    return DirectoryUnusable(f"the output cannot be written: {error.strerror}")


def write_fully(fd: int, data: bytes | bytearray) -> None:
    """Write everything, however slow the reader. Raises OSError."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:  # somebody who has the descriptor too made it non-blocking
            waiting = select.poll()
            waiting.register(fd, select.POLLOUT)
            waiting.poll()


class _Stdout(io.FileIO):
    """Fails once: what waits in a buffer after that is dropped."""

    _failed = False

    def write(self, data: Any) -> int:
        try:
            return len(data) if self._failed else super().write(data)
        except OSError as error:
            self._failed = True
            raise refused(error) from error


class _Stderr(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _text(raw: io.FileIO, before: TextIO | None, errors: str) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=before.encoding if before else None,
        errors=before.errors if before else errors,
        line_buffering=raw.fileno() == 2 or raw.isatty(),
    )

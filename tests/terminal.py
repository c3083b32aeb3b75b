"""A real terminal, as a person has one, for commands that look at theirs."""

from __future__ import annotations

import codecs
import fcntl
import os
import re
import select
import struct
import termios
import time
from types import TracebackType
from typing import Any

PATIENCE = 150.0


class Terminal:
    """`Popen([*terminal.through, …], **terminal.streams)` runs on it, in its foreground."""

    through = ("setsid", "--ctty", "--wait")

    def __init__(self, lines: int = 24, columns: int = 80) -> None:
        self._ours, self._theirs = os.openpty()
        self._open = [self._ours, self._theirs]
        self.resize(lines, columns)
        self.streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), self._theirs)
        self.written = ""
        self._decode = codecs.getincrementaldecoder("utf-8")().decode  # a read may end within a letter

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.hang_up()

    def hang_up(self) -> None:
        """It is gone, as when its window is closed."""
        while self._open:
            os.close(self._open.pop())

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))

    def until(self, text: str) -> str:
        """Read on until `text` is written; returns what came before it."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.written:
            assert select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))[0], self.written
            self.written += self._decode(os.read(self._ours, 65536))
        before, _, self.written = self.written.partition(text)
        return before

    def written_so_far(self) -> str:
        while select.select([self._ours], [], [], 0)[0]:
            self.written += self._decode(os.read(self._ours, 65536))
        return self.written


def screen(written: str) -> list[str]:
    """The lines that stand there in the end, of what knows only line ends and how to clear the rest of a line."""
    lines, column = [""], 0
    for piece in re.split(r"(\r\n|\r|\x1b\[K)", written):
        if piece == "\r\n":
            lines.append("")
        if piece == "\x1b[K":
            lines[-1] = lines[-1][:column]
        elif piece.startswith("\r"):
            column = 0
        else:
            lines[-1] = lines[-1][:column] + piece + lines[-1][column + len(piece) :]
            column += len(piece)
    return lines

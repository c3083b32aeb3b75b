"""What containers print, in files as the Container Runtime Interface has them."""

from __future__ import annotations

import os
import time
from contextlib import suppress

LONGEST = 16 * 1024
"""Bytes of a line; the rest of a longer one follows in further lines."""


class CriLog:
    """One file for both streams of a container: `TIME STREAM F TEXT`, P instead of F where the line goes on."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._begun = {"stdout": b"", "stderr": b""}

    def add(self, stream: str, data: bytes) -> None:
        """Keep what is not yet a line until it is one."""
        *lines, rest = (self._begun[stream] + data).split(b"\n")
        pieces = [piece for line in lines for piece in _pieces(stream, line, "F")]
        while len(rest) >= LONGEST:
            pieces.append(_line(stream, "P", rest[:LONGEST]))
            rest = rest[LONGEST:]
        self._begun[stream] = rest
        self._write(pieces)

    def close(self) -> None:
        """What is left of a line that has no end is written as a part of one."""
        self._write([_line(stream, "P", rest) for stream, rest in self._begun.items() if rest])
        os.close(self._file)

    def _write(self, lines: list[bytes]) -> None:
        with suppress(OSError):  # as a kubelet's node with a full disk: the container goes on
            os.write(self._file, b"".join(lines))


def _pieces(stream: str, line: bytes, last: str) -> list[bytes]:
    parts = [line[at : at + LONGEST] for at in range(0, len(line), LONGEST)] or [b""]
    return [_line(stream, "P", part) for part in parts[:-1]] + [_line(stream, last, parts[-1])]


def _line(stream: str, tag: str, text: bytes) -> bytes:
    now = time.time_ns()
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 10**9))
    return f"{seconds}.{now % 10**9:09d}Z {stream} {tag} ".encode() + text + b"\n"

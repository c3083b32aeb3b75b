"""Cutting a stream of bytes into lines."""

from __future__ import annotations

MOST_BYTES = 4 * 1024 * 1024


class LineTooLong(ValueError):
    """What arrives has no line ends: it does not come from our other side."""


class LineBuffer:
    """Bytes in, whole lines out, without their newline."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines completed by `data`. Raises LineTooLong beyond MOST_BYTES."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MOST_BYTES:
            raise LineTooLong(f"a line of more than {MOST_BYTES} bytes")
        return lines

"""The end of what a process printed, in whole lines."""

from __future__ import annotations


class Tail:
    """Keeps the last `limit` bytes of what several streams printed, each line whole: streams do not mix inside one."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lines = bytearray()
        self._begun: dict[int, bytes] = {}
        """Stream → a line of it that has no end yet."""

    def add(self, stream: int, data: bytes) -> None:
        """What a stream printed next."""
        whole, newline, rest = (self._begun.pop(stream, b"") + data).rpartition(b"\n")
        self._lines += whole + newline
        if rest:
            self._begun[stream] = rest[-self._limit :]
        if len(self._lines) > 2 * self._limit:  # seldom: what stays is copied
            del self._lines[: -self._limit]

    def text(self) -> str:
        """The end, lines without their end last."""
        end = bytes(self._lines) + b"\n".join(self._begun.values())
        return end[-self._limit :].decode(errors="replace")


def last_lines(text: str, most: int = 20, width: int = 160) -> str:
    """The last lines that are not empty, under a heading; empty when there are none."""
    found = [line.rstrip()[:width] for line in text.splitlines() if line.strip()][-most:]
    return "\n".join(["last lines of its output:", *(f"  {line}" for line in found)]) if found else ""

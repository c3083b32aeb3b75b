"""The lines of ranks under `mpirun --tag-output`, put together again.

Open MPI 4 writes what ranks print piece by piece, with a tag before each, and pieces of several ranks on one line. A
secret that was cut so would not be found. Open MPI 5 writes whole lines.
"""

from __future__ import annotations

import re

_TAG = re.compile(rb"(\[\d+,\d+\]<std(?:out|err|diag)>:)")
_BEGUN = re.compile(rb"\[(?:\d+(?:,(?:\d+(?:\](?:<[a-z]*>?)?)?)?)?)?\Z")
"""The beginning of a tag, at the end of what has come."""
LONGEST_LINE = 1 << 16
"""A longer one is passed on in parts."""


class TaggedLines:
    """Bytes in, whole lines out, each with the tag of its rank. Lines without a tag are mpirun's own."""

    def __init__(self) -> None:
        self._held = b""
        self._tag = b""
        self._lines: dict[bytes, bytes] = {}
        """Tag → what has come of its line."""

    def feed(self, data: bytes) -> bytes:
        data = self._held + data
        begun = _BEGUN.search(data)
        until = begun.start() if begun else len(data)
        self._held = data[until:]
        out = []
        for piece in _TAG.split(data[:until]):
            if _TAG.fullmatch(piece):
                self._tag = piece
            elif piece:
                out += self._whole(piece)
        return b"".join(out)

    def finish(self) -> bytes:
        """Nothing more comes: what has come of lines, one below the other."""
        rest, self._held = self._held, b""
        if rest:
            self._lines[self._tag] = self._lines.get(self._tag, b"") + rest
        lines, self._lines = self._lines, {}
        return b"\n".join(tag + line for tag, line in lines.items())

    def _whole(self, piece: bytes) -> list[bytes]:
        found = []
        for part in piece.splitlines(keepends=True):
            line = self._lines.pop(self._tag, b"") + part
            if line.endswith(b"\n") or len(line) > LONGEST_LINE:
                found.append(self._tag + line)
            else:
                self._lines[self._tag] = line
            if part.endswith(b"\n"):
                self._tag = b""
        return found

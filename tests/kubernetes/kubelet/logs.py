"""A container's log, as the container runtime interface keeps it, and as `kubectl logs` asks for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

PAUSE_SECONDS = 0.1


def shown(line: bytes) -> bytes:
    """What is sent for one line of the file: `TIME STREAM F TEXT`, P for a line that goes on in the next."""
    _, _, partial, text = [*line.rstrip(b"\n").split(b" ", 3), b"", b"", b""][:4]
    return text if partial.startswith(b"P") else text + b"\n"


def read(path: Path, tail: int | None, follow: bool, ended: Callable[[], bool]) -> Iterator[bytes]:
    """The log, or its last lines; with `follow` until the container has ended."""
    with path.open("rb") as file:
        lines = file.readlines()
        half = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        yield from map(shown, lines if tail is None else lines[max(len(lines) - tail, 0) :])
        while follow:
            over = ended()
            while line := file.readline():
                half += line
                if half.endswith(b"\n"):
                    yield shown(half)
                    half = b""
            if over:
                return
            time.sleep(PAUSE_SECONDS)

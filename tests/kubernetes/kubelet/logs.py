"""A container's log, as the container runtime interface keeps it, and as `kubectl logs` asks for it."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

PAUSE_SECONDS = 0.1


class Wanted(NamedTuple):
    """What was asked for."""

    follow: bool = False
    tail: int | None = None
    timestamps: bool = False
    since: float = 0.0
    limit: int | None = None

    @classmethod
    def of(cls, query: Mapping[str, str], now: float) -> Wanted:
        since = now - float(query["sinceSeconds"]) if "sinceSeconds" in query else 0.0
        if "sinceTime" in query:
            since = datetime.datetime.fromisoformat(query["sinceTime"].replace("Z", "+00:00")).timestamp()
        return cls(
            query.get("follow") == "true",
            int(query["tailLines"]) if "tailLines" in query else None,
            query.get("timestamps") == "true",
            since,
            int(query["limitBytes"]) if "limitBytes" in query else None,
        )


def shown(line: bytes, wanted: Wanted) -> bytes:
    """What is sent for one line of the file: `TIME STREAM F TEXT`, P for a line that goes on in the next."""
    moment, _, partial, text = [*line.rstrip(b"\n").split(b" ", 3), b"", b"", b""][:4]
    if wanted.since and _seconds(moment) < wanted.since:
        return b""
    end = b"" if partial.startswith(b"P") else b"\n"
    return (moment + b" " if wanted.timestamps else b"") + text + end


def _seconds(moment: bytes) -> float:
    """The seconds of a time with up to nine digits behind the second."""
    whole, _, rest = moment.decode().rstrip("Z").partition(".")
    start = datetime.datetime.fromisoformat(f"{whole}+00:00").timestamp()
    return start + float(f"0.{rest.partition('+')[0] or 0}")


def read(path: Path, wanted: Wanted, ended: Callable[[], bool]) -> Iterator[bytes]:
    """The log; with `follow` until the container has ended."""
    left = wanted.limit
    for piece in _pieces(path, wanted, ended):
        text = piece if left is None else piece[:left]
        if text:
            yield text
        if left is not None and (left := left - len(text)) <= 0:
            return


def _pieces(path: Path, wanted: Wanted, ended: Callable[[], bool]) -> Iterator[bytes]:
    with path.open("rb") as file:
        lines = file.readlines()
        half = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        for line in lines if wanted.tail is None else lines[max(len(lines) - wanted.tail, 0) :]:
            yield shown(line, wanted)
        while wanted.follow:
            over = ended()
            while line := file.readline():
                half += line
                if half.endswith(b"\n"):
                    yield shown(half, wanted)
                    half = b""
            if over:
                return
            time.sleep(PAUSE_SECONDS)

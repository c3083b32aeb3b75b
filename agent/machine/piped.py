"""Runs a program to its end while its output passes by: for processes that do one thing after the other."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

MOST_LINE = 1 << 16
ORPHAN_SECONDS = 1.0
"""How long the output may stay silent of a program that has ended, while what it left behind holds it."""
Line = Callable[[str], None]


class Piped:
    """One process. It is of this one's group, so that it gets what the group gets."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> None:
        """Raises OSError."""
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            list(argv), env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe
        )
        self._pidfd = os.pidfd_open(self._process.pid)

    def wait(self, seen: Mapping[int, Line], tick: Callable[[], float], *, shown: Sequence[int] = (1, 2)) -> int:
        """Its status when it has ended. `seen` gets each line of stdout (1) or stderr (2); those `shown` are written to
        ours as they come. `tick` is called again and again; it returns in how many seconds it wants to be next.
        """
        process = self._process
        assert process.stdout is not None and process.stderr is not None
        streams = {
            file.fileno(): _Stream(number if number in shown else 0, seen.get(number))
            for number, file in ((1, process.stdout), (2, process.stderr))
        }
        try:
            self._pass_on(streams, self._pidfd, tick)
            select.select([self._pidfd], [], [])
            return process.wait()
        finally:
            os.close(self._pidfd)
            process.stdout.close()
            process.stderr.close()

    def _pass_on(self, streams: dict[int, _Stream], pidfd: int, tick: Callable[[], float]) -> None:
        ended = False
        at = time.monotonic() + tick()
        while streams:
            patience = ORPHAN_SECONDS if ended else max(0.0, at - time.monotonic())
            ready = select.select([*streams] if ended else [*streams, pidfd], [], [], patience)[0]
            if ended and not ready:
                break  # what it left behind holds them
            for fd in ready:
                if fd == pidfd:
                    ended = True
                elif not streams[fd].take(os.read(fd, 65536)):
                    del streams[fd]
            if time.monotonic() >= at:
                at = time.monotonic() + tick()

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        """End it and all that it has started, at once."""
        import psutil

        stopped: set[Any] = set()
        with suppress(psutil.Error):
            first = psutil.Process(self._process.pid)
            while new := {first, *first.children(recursive=True)} - stopped:
                stopped |= new
                for process in new:
                    with suppress(psutil.Error):
                        process.suspend()  # none that begins meanwhile shall be missed
        for process in stopped:
            with suppress(psutil.Error):
                process.kill()


class _Stream:
    """Cuts what comes into lines for one who looks at them, and shows it on our stream of that number (0: nowhere)."""

    def __init__(self, shown_on: int, seen: Line | None) -> None:
        self._shown_on = shown_on
        self._seen = seen
        self._rest = b""

    def take(self, data: bytes) -> bytes:
        """Returns the bytes: none at the end."""
        with suppress(OSError):  # nobody reads it any more
            left = data if self._shown_on else b""
            while left:
                left = left[os.write(self._shown_on, left) :]
        if self._seen is not None:
            *lines, self._rest = (self._rest + (data or b"\n")).replace(b"\r", b"\n").split(b"\n")
            self._rest = self._rest[:MOST_LINE]
            for line in filter(None, lines):
                self._seen(line.decode(errors="replace"))
        return data

"""One process at a time, and its output as it comes: for processes that do one thing after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from agent.launch import Launch
from agent.machine import files
from agent.machine.loop import Loop
from agent.machine.process import Output, RunningChild

MOST_LINE = 1 << 16
TERM_SECONDS = 10.0
"""How long a process has after SIGTERM when the wait for it is interrupted."""
Line = Callable[[str], None]


class Piped:
    """A process with a loop of its own."""

    def __init__(self, launch: Launch, output: Output, *, own_session: bool = True) -> None:
        """Without a session of its own it gets what is sent to the group of this process. Raises OSError."""
        self._loop = Loop()
        self._status = 0
        try:
            self.child = RunningChild(self._loop, launch, self._ended, output, own_session=own_session)
        except BaseException:
            self._loop.close()
            raise

    def _ended(self, status: int) -> None:
        self._status = status
        self._loop.stop()

    def wait(self, tick: Callable[[], float] | None = None) -> int:
        """Its status when it has ended; what interrupts the wait ends it. `tick` is called again and again; it returns
        in how many seconds it wants to be next."""

        def again() -> None:
            assert tick is not None
            self._loop.later(tick(), again)

        try:
            if tick is not None:
                again()
            self._loop.run()
        except BaseException:
            self.child.end(TERM_SECONDS)
            raise
        finally:
            self._loop.close()
        return self._status

    def kill(self) -> None:
        """End it and all that it has started, at once. Another thread may call it."""
        import psutil

        stopped: set[Any] = set()
        with suppress(psutil.Error):
            first = psutil.Process(self.child.pid)
            while new := {first, *first.children(recursive=True)} - stopped:
                stopped |= new
                for process in new:
                    with suppress(psutil.Error):
                        process.suspend()  # none that begins meanwhile shall be missed
        for process in stopped:
            with suppress(psutil.Error):
                process.kill()


class Passing:
    """Output that is written to ours, that of the streams `shown`, and cut into lines for those who look at them."""

    def __init__(self, seen: Mapping[int, Line], shown: Sequence[int] = (1, 2)) -> None:
        self._seen = seen
        self._shown = shown
        self._rests = dict.fromkeys(seen, b"")

    def take(self, stream: int, data: bytes) -> None:
        if stream in self._shown:
            with suppress(OSError):  # nobody reads it any more
                files.write_all(stream, data)
        if stream in self._seen:
            *lines, rest = (self._rests[stream] + data.replace(b"\r", b"\n")).split(b"\n")
            self._rests[stream] = rest[:MOST_LINE]
            for line in filter(None, lines):
                self._seen[stream](line.decode(errors="replace"))

    def close(self) -> None:
        """Give what is left, the last line without its end."""
        for stream, rest in self._rests.items():
            if rest:
                self._seen[stream](rest.decode(errors="replace"))

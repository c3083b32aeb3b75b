"""One process at a time, and its output as it comes: for scripts and stages, which do nothing else meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from agent.errors import MissingProgram
from agent.launch import Launch
from agent.machine.loop import Loop
from agent.machine.process import Output, RunningChild
from agent.output import write_all
from agent.standard_streams import write_fully

KEPT_BYTES = 65536
"""At the end of what a script's process printed, for whoever judges it."""
MOST_LINE = 1 << 16
Line = Callable[[str], None]


class LaunchEnd(NamedTuple):
    """How a process ended."""

    status: int
    """Its exit status, -n when signal n killed it."""
    output: str
    """The end of what it printed on stdout and stderr."""


def run_launch(launch: Launch) -> LaunchEnd:
    """Start a process, pass on to our stdout and stderr what it prints, and wait for its end.

    It has no stdin and a session of its own: what interrupts the wait, as Ctrl-C does, ends it with its group (SIGTERM;
    when it has ended, and after 10 s at most, SIGKILL) and is raised again. Nothing is masked, and nothing else that it
    leaves behind is looked for: for runs that are submitted to it the agent does both.
    Raises MissingProgram when it cannot be started, BrokenPipeError when nobody reads what it prints.
    """
    sys.stdout.flush()  # what was printed before stands before
    kept = b""

    def output(stream: int, data: bytes) -> None:
        nonlocal kept
        write_all(stream, data)
        kept = (kept + data)[-KEPT_BYTES:]

    try:
        process = Piped(launch, output)
    except OSError as error:
        raise MissingProgram(f"{launch.argv[0]} cannot be started in {launch.cwd}: {error.strerror}") from error
    return LaunchEnd(process.wait(), kept.decode(errors="replace"))


class Piped:
    """A process with a loop of its own."""

    def __init__(self, launch: Launch, output: Output, *, own_session: bool = True) -> None:
        """Without a session of its own it gets what is sent to the group of this process. Raises OSError."""
        self._loop = Loop()
        self._status = 0
        try:
            self.child = RunningChild(self._loop, None, launch, self._ended, output, own_session=own_session)
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
            self.child.end(10.0)  # seconds from SIGTERM to SIGKILL
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
                write_fully(stream, data)
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

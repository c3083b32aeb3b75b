"""Where the output of pods goes on its way to a person: sinks for `agent.client.Client.follow`."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Protocol

from agent.errors import DirectoryUnusable
from agent.standard_streams import refused, write_fully

STDOUT, STDERR, AGENT = 1, 2, 3
"""Streams of what a pod prints: the workload's two, and the agent's own lines."""
_when_color = "auto"
_printing: Callable[[bytes], AbstractContextManager[object]] = nullcontext
_LOST_RACE = re.compile(rb"(?m)^\[\S+:\d+\] plm:rsh: Warning: setpgid\(\d+,\d+\) failed in parent with errno=.*\n")
"""mpirun says this where the ssh that it starts has begun before mpirun could give it a process group. ssh has made one
for itself by then: nothing is wrong."""
HELD_SECONDS = 0.5
HELD_BYTES = 65536


GOOD, BAD = "32", "31"
"""Green and red, in the words of a terminal."""


def wants_color(when: str, environ: Mapping[str, str], *, is_terminal: bool) -> bool:
    """Whether to paint. `when`: auto, always or never, as the command line says.

    NO_COLOR goes before FORCE_COLOR; empty ones say nothing.
    """
    if when != "auto":
        return when == "always"
    if environ.get("NO_COLOR"):
        return False
    return bool(environ.get("FORCE_COLOR")) or (is_terminal and environ.get("TERM") != "dumb")


def painted(text: str, color: str) -> str:
    """The first line in this colour."""
    first, newline, rest = text.partition("\n")
    return f"\x1b[{color}m{first}\x1b[0m{newline}{rest}"


class Sink(Protocol):
    """The protocol of what takes the output of pods; the next piece comes when the sink is done with the last.

    A class that inherits from this need only say what it does with output.
    """

    def output(self, pod: int, stream: int, data: bytes) -> None:
        """Take some bytes of a stream (1 stdout, 2 stderr, 3 the agent's own lines); may block as long as it likes."""

    def wants(self, pod: int) -> bool:
        """Should more of this pod be read?"""
        return True

    def over(self, pod: int) -> None:
        """This pod prints nothing more."""
        return

    def note(self, text: str) -> None:
        """Something that the person should know."""
        say(text)

    def idle(self) -> float | None:
        """Called again and again; returns in how many seconds it has to be called next, None for whenever."""
        return None

    def close(self) -> None:
        """Nothing more comes of any pod."""
        return


class Lines:
    """A sink that writes each pod's stdout and stderr to ours: as they are, or line by line (`whole`).

    Whole lines are for output of several pods: lines of different pods never mix. A line that does not end is held back
    for half a second or 64 KiB, and what was written of it is ended before another pod's line. `label` puts `[pod] `
    in front of each. The agents' own lines are shown with `agent` only, on stderr.
    Raises BrokenPipeError when nobody reads any more, DirectoryUnusable when writing fails otherwise.
    """

    def __init__(
        self,
        *,
        label: bool = False,
        whole: bool = True,
        agent: bool = False,
        stdout: int = STDOUT,
        stderr: int = STDERR,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._label = label
        self._whole = whole or label
        self._targets = {STDOUT: stdout, STDERR: stderr} | ({AGENT: stderr} if agent else {})
        self._screens = {target: _screen(target) for target in self._targets.values()}
        self._now = now
        self._held: dict[tuple[int, int], tuple[float, bytes]] = {}
        """(pod, stream) → since when, and the beginning of a line."""
        self._unended: dict[object, tuple[int, int]] = {}
        """Screen → the (pod, stream) whose line stands there without its end."""

    def output(self, pod: int, stream: int, data: bytes) -> None:
        if stream not in self._targets:
            return
        if not self._whole:
            write_all(self._targets[stream], _LOST_RACE.sub(b"", data) if stream == STDERR else data)
            return
        since, before = self._held.pop((pod, stream), (self._now(), b""))
        text = before + data
        end = text.rfind(b"\n") + 1
        if end < len(text) <= end + HELD_BYTES:
            self._held[pod, stream] = (self._now() if end else since, text[end:])
            text = text[:end]
        self._write((pod, stream), text)

    def wants(self, pod: int) -> bool:
        return True

    def over(self, pod: int) -> None:
        for stream in self._targets:
            self._release((pod, stream))

    def note(self, text: str) -> None:
        say(text)

    def idle(self) -> float | None:
        now = self._now()
        for source, (since, _) in list(self._held.items()):
            if now - since >= HELD_SECONDS:
                self._release(source)
        return min((since + HELD_SECONDS - now for since, _ in self._held.values()), default=None)

    def close(self) -> None:
        for source in list(self._held):
            self._release(source)

    def _release(self, source: tuple[int, int]) -> None:
        self._write(source, self._held.pop(source, (0.0, b""))[1])

    def _write(self, source: tuple[int, int], text: bytes) -> None:
        pod, stream = source
        if stream == STDERR:
            text = _LOST_RACE.sub(b"", text)
        if not text:
            return
        target = self._targets[stream]
        unended = self._unended.pop(self._screens[target], None)
        if self._label:
            text = labelled(b"[%d] " % pod, text, continued=unended == source)
        if unended not in (None, source):
            text = b"\n" + text
        if not text.endswith(b"\n"):
            self._unended[self._screens[target]] = source
        write_all(target, text)


def labelled(label: bytes, text: bytes, *, continued: bool = False) -> bytes:
    """`text` with `label` in front of each line, the first excepted when it only continues one."""
    body, end = (text[:-1], b"\n") if text.endswith(b"\n") else (text, b"")
    first = b"" if continued else label
    return first + body.replace(b"\n", b"\n" + label) + end


def write_all(fd: int, data: bytes) -> None:
    """Write everything, however slow the reader. Raises BrokenPipeError when it has gone, else DirectoryUnusable."""
    try:
        with _printing(data):
            write_fully(fd, data)
    except OSError as error:
        raise refused(error) from error


def print_inside(printing: Callable[[bytes], AbstractContextManager[object]] = nullcontext) -> None:
    """Whatever is printed from now on is printed inside `printing(data)`."""
    global _printing
    _printing = printing


def choose_color(when: str) -> None:
    """What --color says, for all messages of this command."""
    global _when_color
    _when_color = when


def toned(text: str, color: str, *, stream: int = STDERR) -> str:
    """A text for that stream, its first line in this colour where colours are wanted."""
    return painted(text, color) if wants_color(_when_color, os.environ, is_terminal=os.isatty(stream)) else text


def say(text: str, color: str = "") -> None:
    """A message to the person, on stderr; nothing happens if nobody reads it."""
    message = f"a4-agent: {text}\n"
    with suppress(OSError, DirectoryUnusable):
        write_all(STDERR, (toned(message, color) if color else message).encode(errors="backslashreplace"))


def _screen(fd: int) -> object:
    """The same value for two descriptors whose output meets, as stdout and stderr on one terminal."""
    try:
        seen = os.fstat(fd)
    except OSError:
        return fd
    return (seen.st_dev, seen.st_ino)

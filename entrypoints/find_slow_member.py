"""What every process of find-slow has: lines over a socket, and children that measure and are killed at a deadline.

Standard library only: find-slow.py runs it under the agent's Python, find-slow-torch.py under the workload's.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

LOST = 75
GRACE_SECONDS = 2.0
"""For a process to answer after its deadline, and for a child to be gone after SIGKILL."""
SILENT_SECONDS = 900.0
"""Without a word from the conductor: who hangs is not asked for some rounds, each of up to --seconds 60."""
CHUNK = 1 << 20
MOST_LINE = 1 << 16

Say = Callable[[object], object]
Work = Callable[[Say], None]
"""Runs in a child and says the value that it measured; a second one takes the place of the first."""


class JsonLines:
    """JSON lines over a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.left = b""

    def send(self, **values: object) -> None:
        """Raises OSError."""
        self.connection.sendall(json.dumps(values).encode() + b"\n")

    def read(self) -> Iterator[dict[str, Any]]:
        """What has come, after a wait for the first of it. Raises EOFError, OSError and ValueError."""
        data = self.connection.recv(CHUNK)
        *lines, self.left = (self.left + data).split(b"\n")
        if not data:
            raise EOFError
        if len(self.left) > MOST_LINE:
            raise ValueError("a line has no end")
        for line in lines:
            yield dict(json.loads(line))


class FollowingMember:
    """Measures what the conductor says. `works`: kind of task → what its children do, one for each value."""

    def __init__(self, lines: JsonLines, works: Mapping[str, Callable[[dict[str, Any]], Sequence[Work]]]) -> None:
        self.lines = lines
        self.works = works
        lines.connection.settimeout(SILENT_SECONDS)

    def follow(self) -> int:
        """To the end; the exit status."""
        try:
            while True:
                for told in self.lines.read():
                    if told.get("end"):
                        return 0
                    if "kind" in told:
                        self.lines.send(task=told["task"], values=self.measure(told))
        except (OSError, EOFError):
            say("the process on the first pod is gone")
            return LOST

    def measure(self, told: dict[str, Any]) -> list[Any]:
        """What each child said; 0 for one that did not in time. Raises EOFError when the conductor is lost."""
        children = [start(work, told) for work in self.works[told["kind"]](told)]
        said = {child.reader: b"" for child in children}
        until = time.monotonic() + told["deadline"]
        waiting, connection = set(said), self.lines.connection.fileno()
        try:
            while waiting and (left := until - time.monotonic()) > 0:
                for ready in select.select([*waiting, connection], [], [], left)[0]:
                    if ready == connection:
                        if told["task"] in [line.get("stop") for line in self.lines.read()]:
                            waiting.clear()
                    elif data := os.read(ready, CHUNK):
                        said[ready] += data
                    else:
                        waiting.discard(ready)
        finally:
            end(children)
        return [json.loads((b"0\n" + said[child.reader]).split(b"\n")[-2]) for child in children]


class MeasuringChild(NamedTuple):
    """A process that measures, and the descriptor from which what it says is read."""

    pid: int
    reader: int


def start(work: Work, told: Mapping[str, Any]) -> MeasuringChild:
    reader, writer = os.pipe()
    if child := os.fork():
        os.close(writer)
        return MeasuringChild(child, reader)
    try:
        signal.alarm(int(told["deadline"]) + 2)  # should its parent be killed
        os.close(reader)
        work(lambda value: os.write(writer, json.dumps(value).encode() + b"\n"))
    except Exception as error:  # nothing was measured; torch raises whatever it likes
        say(f"{told['kind']}: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")
    finally:
        os._exit(0)


def end(children: Sequence[MeasuringChild]) -> None:
    """SIGKILL, and wait until they are gone, and their memory on GPUs is free. One that hangs in a device stays."""
    for child in children:
        os.close(child.reader)
        os.kill(child.pid, signal.SIGKILL)
    await_gone({child.pid for child in children})


def await_gone(left: set[int]) -> None:
    """Wait a moment for children that were killed."""
    until = time.monotonic() + GRACE_SECONDS / 2
    while left and time.monotonic() < until:
        left = {pid for pid in left if os.waitpid(pid, os.WNOHANG)[0] == 0}
        if left:
            time.sleep(0.005)


def held_port() -> socket.socket:
    """A port that stays ours, and at which a child may listen: it is bound, and does not listen itself."""
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("", 0))
    return held


def say(text: str) -> None:
    with suppress(OSError):
        print(f"find-slow: {text}", file=sys.stderr, flush=True)

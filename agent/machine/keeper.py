"""The process that stores files where they may hang, entrypoints/keep-results.py."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache

from agent.machine import files
from agent.machine.helper_process import HelperProcess
from agent.machine.loop import Loop


@cache
def mount_points() -> tuple[str, ...]:
    """Where something was mounted when this agent first asked: a mount that has gone since is missed."""
    table = files.read("/proc/self/mountinfo") or ""
    return tuple(line.split(" ", 5)[4] for line in table.splitlines())


def mount_of(directory: str, points: Sequence[str]) -> str:
    """The innermost of these mount points that `directory` lies on, by its name alone: nothing is asked of it.

    All as mountinfo writes it, with octal numbers for spaces and the like.
    """
    path = os.path.abspath(directory).translate({ord(char): f"\\{ord(char):03o}" for char in " \t\n\\"})
    return max((point for point in points if f"{path}/".startswith(f"{point.rstrip('/')}/")), key=len, default="/")


def start_keeper(
    loop: Loop,
    directory: str,
    number: int,
    heard: Callable[[Sequence[str]], None],
    ended: Callable[[HelperProcess, int], None],
    base: str = "",
) -> HelperProcess:
    """An agent.machine.api.KeeperProcess. `heard` gets the words of each line, `ended` its exit status. Raises
    OSError."""
    arguments = [mount_of(directory, mount_points()), base or directory, directory, str(number)]
    return HelperProcess(loop, "keep-results.py", arguments, heard, ended)

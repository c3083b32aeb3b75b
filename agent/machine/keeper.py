"""The process that stores files where they may hang, entrypoints/keep-results.py."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache

from agent.machine import files
from agent.machine.helper_process import HelperProcess
from agent.machine.loop import Loop
from agent.mounts import escaped, parse_mounts


@cache
def mount_points() -> tuple[str, ...]:
    """Where something was mounted when this agent first asked: a mount that has gone since is missed."""
    return tuple(mount.point for mount in parse_mounts(files.read("/proc/self/mountinfo") or ""))


def mount_of(directory: str, points: Sequence[str]) -> str:
    """The innermost of these mount points that `directory` lies on, by its name alone: nothing is asked of it."""
    path = os.path.abspath(directory)
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
    arguments = [escaped(mount_of(directory, mount_points())), base or directory, directory, str(number)]
    return HelperProcess(loop, "keep-results.py", arguments, heard, ended)

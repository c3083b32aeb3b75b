"""Which of a run's processes are its ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

Role = Literal["rank", "launcher", "child", "other"]
LAUNCHERS = re.compile(
    r"(^|[/ ])(mpirun|mpiexec|prterun|orted|prted|prte|torchrun)( |$)| -m torch\.distributed\.(run|launch)( |$)"
)


class SeenProcess(NamedTuple):
    """What tells the role of one process."""

    pid: int
    parent: int
    rank: int | None
    """The one in its environment, which all that a rank starts has, too."""
    program: str
    is_ours: bool = False
    """The agent's own, before a rank's program."""


def roles(processes: Sequence[SeenProcess], noted: Mapping[int, int]) -> dict[int, Role]:
    """Role by process. `noted`: process → rank of those that are known as ranks, also when they are gone.

    Of the processes with one rank's number the rank is the one that was noted, else the outermost that is not ours. One
    whose parent is gone, as of a daemon or of a rank that has ended, is no rank where another is known.
    """
    by_pid = {process.pid: process for process in processes}
    found: dict[int, Role] = {}
    for process in processes:
        if process.rank is None:
            found[process.pid] = "launcher" if LAUNCHERS.search(process.program) else "other"
        elif process.is_ours:
            found[process.pid] = "other"
        else:
            found[process.pid] = _of_rank(process, by_pid, noted)
    return found


def _of_rank(process: SeenProcess, by_pid: Mapping[int, SeenProcess], noted: Mapping[int, int]) -> Role:
    if process.pid in noted:
        return "rank"
    above = list(_above(process, by_pid))
    if any(one.pid in noted for one in above):
        return "child"
    if any(other in noted and by_pid[other].rank == process.rank for other in by_pid):
        return "other"  # a shell that started the noted one
    if process.rank in noted.values() and process.parent not in by_pid and not above:
        return "child"  # of a rank that is gone: a worker of its data loader may outlive it
    is_orphan = process.parent not in by_pid
    is_left = is_orphan and any(_is_started(other, process.rank, by_pid) for other in by_pid.values())
    return "child" if above or is_left else "rank"


def _is_started(process: SeenProcess, rank: int | None, by_pid: Mapping[int, SeenProcess]) -> bool:
    """It has that rank's number, and what has started it is there."""
    return process.rank == rank and not process.is_ours and process.parent in by_pid


def _above(process: SeenProcess, by_pid: Mapping[int, SeenProcess]) -> list[SeenProcess]:
    """Processes of the same rank that it comes from."""
    found: list[SeenProcess] = []
    parent = by_pid.get(process.parent)
    while parent is not None and parent.rank == process.rank and not parent.is_ours and parent not in found:
        found.append(parent)
        parent = by_pid.get(parent.parent)
    return found

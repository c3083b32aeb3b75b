"""What a look is about, and what it gives."""

from __future__ import annotations

from typing import NamedTuple

from agent.health.why.records import PodRecords

APART_SECONDS = 1.0
"""Between two looks at how far ranks came."""


class Question(NamedTuple):
    """Where to look. Paths are those of this pod."""

    run: str
    pod: int
    name: str
    node: str = ""
    hosts: tuple[str, ...] = ()
    """The pod's address and host name: NCCL names a process by one of them."""
    group: int = 0
    cgroup: str = ""
    """What marks the run's processes, as in agent.machine.api.RunMarks."""
    why_dir: str = ""
    ranks_dir: str = ""
    path: str = ""
    """Search path for py-spy."""
    seconds: float = 9.0
    prepared: bool = True
    """A4_WHY: ranks have sockets."""


class LookAnswer(NamedTuple):
    """What was found in time."""

    records: PodRecords
    text: str = ""
    """For people, as in agent.machine.api.Evidence."""
    summary: str = ""

"""What the supervisor knows of each pod, and what pods print."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from agent.workbench.local.channel import MessageChannel
from agent.workbench.local.container import Container

ENDED, RUNNING, STARTING, WAITING, ABSENT = "ended", "running", "starting", "waiting", "absent"
_MOST_SENT = 256 * 1024
"""Bytes that a follower gets at a time."""


@dataclass
class PodInfo:
    """One pod as clients see it. Times are None until they have come."""

    index: int
    """Completion index."""
    name: str
    """DNS name."""
    node: str
    """Host name of its machine."""
    address: str
    """IPv4 address."""
    state: str = ABSENT
    """absent (missing or dead), waiting (still to come, or lost and to be replaced), starting, running, ended."""
    code: int | None = None
    """Exit code of the container: 128 + n after signal n."""
    pid: int | None = None
    """PID 1 of the pod, as this machine numbers it."""
    created: float | None = None
    """When its container was begun (seconds since the epoch)."""
    created_monotonic: float | None = None
    """The same by CLOCK_MONOTONIC, which all pods share."""
    started: float | None = None
    """When its program was started."""
    started_monotonic: float | None = None
    """The same by CLOCK_MONOTONIC."""
    ended: float | None = None
    """When it ended."""
    machine: int = 0
    """The simulated machine that it is on: that of its index, or for a replacement a spare one."""
    replaced: int = 0
    """How often a pod of this index has been replaced before."""


@dataclass
class LocalPod:
    """A pod and the supervisor's hold on it."""

    info: PodInfo
    container: Container | None = None
    files: list[int] = field(default_factory=list)
    """Its mount namespace and its root directory, which so stay readable after its last process."""

    @property
    def is_over(self) -> bool:
        """Nothing more will come from it by itself."""
        return self.info.state in (ENDED, ABSENT)

    @property
    def is_lost(self) -> bool:
        """It has ended, and its replacement is still to come."""
        return self.info.state == WAITING and self.info.code is not None


@dataclass
class Follower:
    """A client that reads output; it gets more only when it has taken what it got."""

    channel: MessageChannel
    pod: int | None
    follow: bool
    at: int = 0


@dataclass
class LogBook:
    """The output of all pods in the order in which it came."""

    is_complete: Callable[[int | None], bool]
    """Whether that pod, or with None all of them, will print nothing more."""
    records: list[tuple[int, str, bytes]] = field(default_factory=list)
    followers: list[Follower] = field(default_factory=list)

    def add(self, pod: int, stream: str, data: bytes) -> None:
        """Keep a piece, and give it to those who follow."""
        self.records.append((pod, stream, data))
        self.advance()

    def serve(self, follower: Follower) -> None:
        """Send all that there is and, if the client follows, what comes."""
        self.followers.append(follower)
        follower.channel.on_drained = lambda: self._advance(follower)
        follower.channel.on_close = lambda: self._forget(follower)
        self._advance(follower)

    def advance(self) -> None:
        """Give followers what is new."""
        for follower in list(self.followers):
            self._advance(follower)

    def _advance(self, follower: Follower) -> None:
        stream = follower.channel.stream
        while stream.is_open and stream.is_idle and follower.at < len(self.records):
            lines, size = [], 0
            while size < _MOST_SENT and follower.at < len(self.records):
                pod, name, data = self.records[follower.at]
                follower.at += 1
                if follower.pod in (None, pod):
                    lines.append((pod, name, data.decode("latin-1")))
                    size += len(data)
            if lines:
                follower.channel.send({"output": lines})
        is_at_end = follower.at == len(self.records)
        if is_at_end and (not follower.follow or self.is_complete(follower.pod)):
            self._forget(follower)
            follower.channel.send({"end": True})

    def _forget(self, follower: Follower) -> None:
        if follower in self.followers:
            self.followers.remove(follower)

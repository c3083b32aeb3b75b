"""What a container shall be, and how it has ended."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


@dataclass(frozen=True)
class Bind:
    """One mount of a container: a file or directory of the host, or what `Sandbox.volume` has made."""

    source: Path
    target: str
    read_only: bool = False


@dataclass(frozen=True)
class ContainerSpec:
    """A container as it shall be: this machine's root file system, under a layer of its own."""

    name: str
    argv: list[str]
    env: dict[str, str]
    """All of it."""
    log: Path
    """Where its output goes: one line per written line, "TIME stdout|stderr F TEXT"."""
    cwd: str = "/"
    binds: tuple[Bind, ...] = ()
    privileged: bool = False
    termination_path: str = "/dev/termination-log"


class Ended(NamedTuple):
    """How a container has ended."""

    code: int
    """128 + n after signal n."""
    signal: int | None
    message: str
    """The end of its termination file, 4,096 bytes at most."""


LOST = Ended(128 + signal.SIGKILL, signal.SIGKILL, "the process that held the container has ended")

"""What a container shall be, and how it has ended."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.kubernetes.runtime_requests import Identity as Identity

_USUAL = """
CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT KILL
AUDIT_WRITE
"""
USUAL_CAPABILITIES = tuple(_USUAL.split())
"""What container runtimes give to a container that is not privileged, before it adds and drops any."""


ROOT = Identity()


@dataclass(frozen=True)
class Bind:
    """One mount of a container: a file or directory of the host, or what `Sandbox.volume` has made."""

    source: Path
    target: str
    read_only: bool = False


@dataclass(frozen=True)
class ContainerSpec:
    """A container as it shall be."""

    name: str
    root: Path
    """Root file system of its image, under a layer of the container's own; "/" is this machine's."""
    argv: list[str]
    env: dict[str, str]
    """All of it."""
    log: Path
    """Where its output goes: one line per written line, "TIME stdout|stderr F TEXT"."""
    cwd: str = "/"
    binds: tuple[Bind, ...] = ()
    privileged: bool = False
    memory: int | None = None
    """Bytes. Where no memory controller can be written, the start fails in words (`Runtime.limits_memory`)."""
    termination_path: str = "/dev/termination-log"
    identity: Identity = ROOT
    """Commands in the container have it, too."""


class Ended(NamedTuple):
    """How a container has ended."""

    code: int
    """128 + n after signal n."""
    signal: int | None
    oom_killed: bool
    message: str
    """The end of its termination file, 4,096 bytes at most."""


LOST = Ended(128 + signal.SIGKILL, signal.SIGKILL, False, "the process that held the container has ended")

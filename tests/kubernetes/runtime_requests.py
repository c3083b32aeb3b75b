"""What the runtime and the process that holds its namespaces tell each other: one request per connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from agent.workbench.local.root import Bind


class Begin(NamedTuple):
    """To the holder, when it starts."""

    network: int
    """A process in the network namespace of the bridge, as this machine numbers it."""
    first_cable: int
    """Cables from here on are the holder's."""
    cgroup: str
    """Where its cgroup is to be made; empty: nowhere."""
    file_systems: tuple[str, ...]
    installation: tuple[str, ...]
    command: str
    """Text of the program `a4-agent` in images that are this machine's root."""


class NewSandbox(NamedTuple):
    """A pod's."""

    hostname: str
    node: int
    host_network: bool


class NewVolume(NamedTuple):
    """A directory in memory."""

    sandbox: int
    name: str
    size: int | None
    """In bytes; None: as much as there is."""


class NewContainer(NamedTuple):
    """A container in a sandbox."""

    sandbox: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    binds: tuple[Bind, ...]
    privileged: bool
    termination_path: str
    log: str


class NewCommand(NamedTuple):
    """A command in a container."""

    container: int
    argv: tuple[str, ...]

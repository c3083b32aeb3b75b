"""What a fabric is: everything that the agent knows of one, as a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from agent.decide.inventory import Inventory

Variables = Mapping[str, str]


class Needs(NamedTuple):
    """What to look for in a pod."""

    libraries: Sequence[str] = ()
    """Names that the loader is asked for, as programs ask for them; NCCL and its plugin, which every pod is asked for,
    need not be named."""
    files: Sequence[str] = ()
    """Files that must be there."""
    socket_dir: str = ""
    """Where the daemon beside the workload puts its sockets; empty: there is none."""


class Fabric(NamedTuple):
    """One fabric; its variables are in env/NAME.env."""

    name: str
    """Name of the profile, as A4_PROFILE takes it."""
    mark: str
    """Directory that only pods with this fabric have."""
    network: str
    """How NCCL's name for its network begins; a version may follow."""
    needs: Callable[[Variables], Needs]
    """From the environment of workloads."""
    problems: Callable[[Inventory], Iterable[str]]
    """Why a pod with this inventory cannot use the fabric; each sentence stands alone."""
    scripts: Sequence[str] = ()
    """Vendors' scripts that set the environment, in the order in which they are run."""
    nccl_tests: Sequence[str] = ()
    """What `nccl` runs where nothing else is asked for; empty: what it runs without a fabric."""
    nccl_options: Mapping[str, str] = {}
    """Short options of nccl-tests → the fabric's own defaults."""
    nccl_cores: str = ""
    """Cores for nccl-tests, as taskset takes them; empty: all."""


def plugin(environ: Variables) -> str:
    """The network plugin that NCCL loads."""
    name = environ.get("NCCL_NET_PLUGIN", "")
    if "/" in name or name.endswith(".so"):
        return name
    return f"libnccl-net-{name}.so" if name else "libnccl-net.so"

"""What one pod knows of itself and tells the coordinator: its facts, and what was found out about its health."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from agent import wire

SOURCES = ("A4_LOCATION", "physical_host_topology", "physical_host")
"""Where a place can come from, the one that is believed most first."""


class Facts(NamedTuple):
    """What the agent of a pod knows of it."""

    index: int  # type: ignore[assignment]  # nobody needs that of tuple
    """Completion index."""
    nonce: str
    """Drawn at each start of the agent; also the token by which ranks prove on which pod they run."""
    version: str
    """Release of its agent."""
    node: str
    """Name of its node; the host name where that is not known."""
    address: str
    """IPv4 address of `interface`."""
    interface: str
    """The network interface for SSH, MPI and rendezvous."""
    slots: int
    """GPUs per pod, as the settings have it."""
    gpus: int = 0
    """GPUs that the pod can open."""
    places: Mapping[str, tuple[str, ...]] = {}
    """Place of its node by where that is from: `A4_LOCATION`, `physical_host_topology`, `physical_host`."""
    addresses: Mapping[str, str] = {}
    """IPv4 address by interface."""
    warnings: tuple[str, ...] = ()
    """What is odd about its place, a sentence each."""
    pod_name: str = ""
    """Its name in Kubernetes; empty: not known."""

    def to_json(self) -> dict[str, Any]:
        return dict(wire.to_json(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Facts:
        """Inverse of `to_json`; raises ValueError for anything else."""
        return wire.from_json(cls, data)


State = Literal["ok", "bad", "unknown"]
Severity = Literal["fatal", "degraded", "information"]


class Finding(NamedTuple):
    """What one check saw on one pod, or on one device of it."""

    check: str
    state: State
    """unknown: the check could not run"""
    severity: Severity
    """how much it matters when the state is bad"""
    pod: int
    node: str = ""
    device: str = ""
    value: str = ""
    """what was seen; of an unknown state: why nothing was"""
    limit: str = ""
    """what is right"""
    source: str = ""
    """where the limit is from"""
    action: str = ""
    """what to do when the state is bad"""

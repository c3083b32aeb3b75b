"""The plan: the one order that hostfiles, ranks and addresses follow (design: one order for all)."""

from __future__ import annotations

from dataclasses import dataclass

Place = tuple[str, ...]
"""Where a node stands, coarsest first: (cluster, block, sub-block, host), fewer parts are fine."""


@dataclass(frozen=True)
class PlannedPeer:
    """One pod in the plan. Its position in `Plan.peers` is its node rank."""

    index: int
    """Completion index of the pod in its Job."""
    name: str
    """Absolute DNS name without the trailing dot, as hostfiles spell it."""
    address: str
    """IPv4 address of the pod."""
    node: str
    """Host name of the machine that the pod runs on."""
    place: Place = ()


@dataclass(frozen=True)
class Plan:
    """What the coordinator decided. `peers[0]` is always the coordinator (index 0)."""

    epoch: str
    slots: int
    """Ranks per pod for MPI (GPUs per pod)."""
    peers: tuple[PlannedPeer, ...]
    source: str = ""
    """Where the places came from; empty: none known, index order kept."""
    warnings: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        """Number of MPI ranks when every slot is used."""
        return self.slots * len(self.peers)

"""The plan: the one order that hostfiles, ranks and addresses follow; hostfiles and order files as text."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from agent import wire
from agent.decide.location import Place, location_text

PLAN_VERSION = 1


class PlannedPeer(NamedTuple):
    """One pod in the plan. Its position in `Plan.peers` is its node rank."""

    index: int  # type: ignore[assignment]  # nobody needs that of tuple
    """Completion index of the pod in its Job."""
    name: str
    """DNS name without the trailing dot, as hostfiles spell it."""
    address: str
    """IPv4 address of the pod."""
    node: str
    """Host name of the machine that the pod runs on."""
    place: Place = ()


class Plan(NamedTuple):
    """What the coordinator decided. `peers[0]` is always the coordinator (index 0)."""

    epoch: str
    slots: int
    """MPI ranks per pod (GPUs per pod)."""
    peers: tuple[PlannedPeer, ...]
    source: str = ""
    """Where the places came from; empty: none known, index order kept."""
    warnings: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        """Number of MPI ranks when every slot is used."""
        return self.slots * len(self.peers)

    def node_rank(self, index: int) -> int:
        """Node rank of the pod with this completion index."""
        return next(rank for rank, peer in enumerate(self.peers) if peer.index == index)

    def to_json(self) -> dict[str, Any]:
        """The form of `plan.json` in the run directory: the fields, a version, and the rank of each peer."""
        found = wire.to_json(self)
        peers = [{"rank": rank, **peer} for rank, peer in enumerate(found.pop("peers"))]
        return {"version": PLAN_VERSION, **found, "peers": peers}  # the peers last, for people

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        """Inverse of `to_json`; raises ValueError for another version and what is no plan."""
        version = data.get("version")
        if version != PLAN_VERSION:
            raise ValueError(f"plan version {version}; this agent reads version {PLAN_VERSION}")
        return wire.from_json(cls, data)


def to_wire(plan: Plan) -> str:
    """The plan as it is sent to every pod: compressed, base64."""
    data = {"version": PLAN_VERSION, **wire.to_json(plan)}
    packed = zlib.compress(json.dumps(data, separators=(",", ":")).encode(), 6)
    return base64.b64encode(packed).decode()


def from_wire(text: str) -> Plan:
    """Inverse of `to_wire`; raises ValueError when it is damaged or of another version."""
    try:
        data = json.loads(zlib.decompress(base64.b64decode(text)))
    except zlib.error as error:
        raise ValueError(f"the plan is damaged: {error}") from error
    if not isinstance(data, dict):
        raise ValueError("the plan is damaged: it is not an object")
    return Plan.from_json(data)


def peer_name(prefix: str, index: int, domain: str) -> str:
    """DNS name of pod `index`, without the trailing dot: `<prefix>0-<index>.<domain>`."""
    return f"{prefix}0-{index}.{domain}"


def hostfile(names: Iterable[str], slots: int) -> str:
    """One `<name> slots=<n>` per line, in the order given."""
    return "".join(f"{name} slots={slots}\n" for name in names)


def rank_order(plan: Plan) -> str:
    """`<location> <name>` per line in plan order, `-` for no place."""
    return "".join(f"{location_text(peer.place)} {peer.name}\n" for peer in plan.peers)


def hostnames_order(plan: Plan) -> str:
    """One name per line in plan order."""
    return "".join(f"{peer.name}\n" for peer in plan.peers)

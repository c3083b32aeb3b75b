"""The plan: the one order that hostfiles, ranks and addresses follow."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.decide.peers import peer_name

PLAN_VERSION = 1

Place = tuple[str, ...]
"""Where a node stands, coarsest first: (cluster, block, sub-block, host); fewer parts are fine."""


@dataclass(frozen=True)
class PlannedPeer:
    """One pod in the plan. Its position in `Plan.peers` is its node rank."""

    index: int
    """Completion index of the pod in its Job."""
    name: str
    """DNS name without the trailing dot, as hostfiles spell it."""
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
        """The form of `plan.json` in the run directory."""
        peers = [
            {
                "rank": rank,
                "index": peer.index,
                "name": peer.name,
                "address": peer.address,
                "node": peer.node,
                "place": list(peer.place),
            }
            for rank, peer in enumerate(self.peers)
        ]
        return {
            "version": PLAN_VERSION,
            "epoch": self.epoch,
            "slots": self.slots,
            "source": self.source,
            "warnings": list(self.warnings),
            "peers": peers,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        """Inverse of `to_json`; raises ValueError for another version."""
        if data["version"] != PLAN_VERSION:
            raise ValueError(f"plan version {data['version']}; this agent reads version {PLAN_VERSION}")
        peers = tuple(
            PlannedPeer(p["index"], p["name"], p["address"], p["node"], tuple(p["place"])) for p in data["peers"]
        )
        return cls(data["epoch"], data["slots"], peers, data["source"], tuple(data["warnings"]))


def to_wire(plan: Plan) -> str:
    """The plan as it is sent to every pod: each part of a place once, compressed, base64.

    Names are left out: the receiver makes them from the prefix and domain that all pods share.
    """
    parts: dict[str, int] = {}
    places = [[parts.setdefault(part, len(parts)) for part in peer.place] for peer in plan.peers]
    data = {
        "version": PLAN_VERSION,
        "epoch": plan.epoch,
        "slots": plan.slots,
        "source": plan.source,
        "warnings": plan.warnings,
        "indices": [peer.index for peer in plan.peers],
        "addresses": [peer.address for peer in plan.peers],
        "nodes": [peer.node for peer in plan.peers],
        "parts": list(parts),
        "places": places,
    }
    packed = zlib.compress(json.dumps(data, separators=(",", ":")).encode(), 6)
    return base64.b64encode(packed).decode()


def from_wire(text: str, prefix: str, domain: str) -> Plan:
    """Inverse of `to_wire`; raises ValueError when it is damaged or of another version."""
    try:
        data = json.loads(zlib.decompress(base64.b64decode(text)))
        if data["version"] != PLAN_VERSION:
            raise ValueError(f"plan version {data['version']}; this agent reads version {PLAN_VERSION}")
        return _from_columns(data, prefix, domain)
    except (zlib.error, KeyError, TypeError, IndexError) as error:
        raise ValueError(f"the plan is damaged: {error!r}") from error


def _from_columns(data: Mapping[str, Any], prefix: str, domain: str) -> Plan:
    columns = zip(data["indices"], data["addresses"], data["nodes"], data["places"], strict=True)
    peers = tuple(
        PlannedPeer(index, peer_name(prefix, index, domain), address, node, tuple(data["parts"][i] for i in ids))
        for index, address, node, ids in columns
    )
    return Plan(data["epoch"], data["slots"], peers, data["source"], tuple(data["warnings"]))

"""The plan: the one order that hostfiles, ranks and addresses follow; hostfiles and order files as text."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from agent import wire
from agent.decide.location import Place, location_text
from agent.decide.words import at_most
from agent.launch import packed, unpacked

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
    """Cluster, block, sub-block and host of its node, as far as they are known."""
    pod_name: str = ""
    """Its name in Kubernetes; empty: not known."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names that people and programs use for it."""
        return self.name, _label(self.name), *([self.pod_name] if self.pod_name else [])

    @property
    def short_name(self) -> str:
        """The name that kubectl takes; where it is not known its beginning, which is that of the DNS name."""
        return self.pod_name or _label(self.name)

    @property
    def known_node(self) -> str:
        """Its node; empty when it is not known: a pod that is not on the host network may know only its own name."""
        return self.node if self.node not in self.names else ""

    @property
    def where(self) -> str:
        """This pod in words."""
        return pod_text(self.index, self.name, self.pod_name, self.node)


class Plan(NamedTuple):
    """The order of the pods, in which `peers[0]` has index 0. A part of it (`subset`) is a plan, too."""

    epoch: str
    """The attempt of the job."""
    slots: int
    """MPI ranks per pod (GPUs per pod)."""
    peers: tuple[PlannedPeer, ...]
    """In the order of node ranks."""
    source: str = ""
    """Where the places came from; empty: none known, index order kept."""
    warnings: tuple[str, ...] = ()
    """About the order, a sentence each."""

    @property
    def ranks(self) -> int:
        """Number of MPI ranks when every slot is used."""
        return self.slots * len(self.peers)

    def node_rank(self, index: int) -> int:
        """Node rank of the pod with this completion index, which must be in the plan."""
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


def moves(before: Plan, after: Plan) -> list[str]:
    """What is different in a plan that was made anew, in words: pods elsewhere, and node ranks that other pods have."""
    was = {peer.index: peer for peer in before.peers}
    elsewhere = [
        f"{peer.where}, has {peer.address} now; {was[peer.index].address} before, on node {was[peer.index].node}"
        for peer in after.peers
        if (peer.address, peer.node) != (was[peer.index].address, was[peer.index].node)
    ]
    ranks = [(peer.index, before.node_rank(peer.index), rank) for rank, peer in enumerate(after.peers)]
    moved = [f"pod {index}: {old} → {new}" for index, old, new in ranks if old != new]
    return at_most([*elsewhere, *([f"node ranks moved: {', '.join(at_most(moved))}"] if moved else [])])


def to_wire(plan: Plan) -> str:
    """The plan as it is sent to every pod: compressed, base64."""
    return packed({"version": PLAN_VERSION, **plan._asdict()})


def from_wire(text: str) -> Plan:
    """Inverse of `to_wire`; raises ValueError when it is damaged or of another version."""
    try:
        data = unpacked(dict[str, Any], text)
    except (zlib.error, ValueError) as error:
        raise ValueError(f"the plan is damaged: {error}") from error
    return Plan.from_json(data)


def _label(name: str) -> str:
    """The first part of a DNS name."""
    return name.partition(".")[0]


def peer_name(prefix: str, index: int, domain: str) -> str:
    """DNS name of pod `index`, without the trailing dot: `<prefix>0-<index>.<domain>`."""
    return f"{prefix}0-{index}.{domain}"


def pod_text(index: int, name: str, pod_name: str, node: str) -> str:
    """A pod in the words of messages: number, name in Kubernetes, node, with the DNS `name` for a name that is not
    known. A pod that is not on the host network has a host name of its own, which is not the name of a node."""
    known = node if node != _label(name) else ""
    if not (pod_name or known):
        return f"pod {index}, {name}, pod name and node not known"
    return f"pod {index}, {pod_name or f'{name}, pod name not known'}, node {known or 'not known'}"


def hostfile(names: Iterable[str], slots: int) -> str:
    """The text of a hostfile for Open MPI: one `<name> slots=<n>` per line, in the order given."""
    return "".join(f"{name} slots={slots}\n" for name in names)


def rank_order(plan: Plan) -> str:
    """`<location> <name>` per line in plan order, `-` for no place."""
    return "".join(f"{location_text(peer.place)} {peer.name}\n" for peer in plan.peers)

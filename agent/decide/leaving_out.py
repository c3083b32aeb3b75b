"""How to continue without pods: what to type, what to give the chart, and how to have a node repaired."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from agent.decide.plan import PlannedPeer
from agent.decide.subset import ranges

BEHAVIORS = {"PERFORMANCE": "PERFORMANCE", "XID": "UNRECOVERABLE_GPU_ERROR"}
"""GKE's names of faults, and those of Compute Engine (gcloud compute instances report-host-as-faulty --help)."""


def report_node(node: str, fault: str) -> str:
    """The command that hands a host over for repair; two where the node's name is not known."""
    label = f"on GKE: kubectl label node {node or 'NODE'} cloud.google.com/fault-behavior={fault}"
    if node:
        return label
    reasons = f"--fault-reasons behavior={BEHAVIORS[fault]},description=a4-agent"
    host = "gcloud compute instances report-host-as-faulty INSTANCE --zone ZONE --disruption-schedule IMMEDIATE"
    return f"{label}; on a VM: {host} {reasons}"


def nodes_of(peers: Sequence[PlannedPeer]) -> list[str]:
    """Their nodes, each once, as far as they are known."""
    return list(dict.fromkeys(peer.known_node for peer in peers if peer.known_node))


def without_them(peers: Sequence[PlannedPeer], indices: Collection[int]) -> list[str]:
    """Lines that leave out the pods with these indices; none where no pod would be left."""
    bad = [peer for peer in peers if peer.index in indices]
    if not bad or len(bad) == len(peers):
        return []
    told = [f"continue without: a4-agent run --exclude {ranges(indices)} …"]
    if nodes := nodes_of(bad):
        told.append(f"chart: --set 'avoidNodes={{{','.join(nodes)}}}'")
    return told

"""How to go on without pods: what to type, and what to give the chart."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from agent.decide.plan import PlannedPeer
from agent.decide.subset import ranges


def nodes_of(peers: Sequence[PlannedPeer]) -> list[str]:
    """Their nodes, each once, as far as they are known."""
    return list(dict.fromkeys(peer.known_node for peer in peers if peer.known_node))


def without_them(peers: Sequence[PlannedPeer], indices: Collection[int]) -> list[str]:
    """Lines that leave out the pods with these indices; none where no pod would be left."""
    bad = [peer for peer in peers if peer.index in indices]
    if not bad or len(bad) == len(peers):
        return []
    told = [f"go on without: a4-agent run --exclude {ranges(indices)} …"]
    if nodes := nodes_of(bad):
        told.append(f"chart: --set 'avoidNodes={{{','.join(nodes)}}}'")
    return told

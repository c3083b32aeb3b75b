"""All pods of the cluster as the coordinator's runs reach them: workers over their channels, this pod by its loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

from agent.decide.messages import Said, SaidOfPart
from agent.lifecycle.channel.lost_pods import LostPods
from agent.lifecycle.channel.roster import Callbacks, Peer, Roster
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.runs.own_parts import Parts


class AllPods:
    """Pod 0 takes part in runs as any other: it is told the same messages, and `heard` gets what every part says."""

    def __init__(self, pod: Pod, heard: Callable[[int, SaidOfPart], None], workers: Callbacks) -> None:
        self._machine = pod.machine
        self.roster = Roster(pod, workers)
        # By the loop: runs count on it that nobody answers from inside the call that told him something.
        self.own = Parts(pod, lambda said: self._later(lambda: heard(0, said)))
        self.lost = LostPods(pod, self.roster.say)

    def tell(self, indices: Collection[int], said: Said) -> None:
        """Tell pods that take part in a run, which may be this one."""
        if 0 in indices:
            self._later(lambda: self.own.told(said))
        self.roster.say(said, (index for index in indices if index))

    def printed(self, indices: Collection[int]) -> float:
        """When one of these pods was last heard to print, on this pod's clock; -inf when none was."""
        own = self.own.printed() if 0 in indices else None
        peers = self.roster.peers
        heard = [peers[index].printed for index in indices if index in peers]
        return max(heard if own is None else [own, *heard], default=-math.inf)

    def peer(self, index: int) -> Peer:
        """A worker that can be talked to. Raises PeerLost."""
        peer = self.roster.peers.get(index)
        if peer is None or peer.lost:
            raise self.lost.error(index)
        return peer

    def _later(self, action: Callable[[], None]) -> None:
        self._machine.later(0, action)

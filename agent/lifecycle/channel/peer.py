"""A worker pod as the coordinator knows it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from agent.decide.messages import Said, message
from agent.decide.plan import peer_name
from agent.lifecycle.channel.link import Link
from agent.lifecycle.channel.questions import Questions
from agent.lifecycle.pod.pod import Pod
from agent.machine.api import Problem, Target


class PeerClock(NamedTuple):
    """How far a worker's clock is ahead of ours, give or take half the trip."""

    trip: float
    """Seconds that the beats to it and from it were on their way."""
    offset: float


@dataclass
class Peer:
    """One worker: how it is reached, the link to it, and what is known of it."""

    target: Target
    """Without an address before a look-up."""
    link: Link = field(default_factory=Link)
    nonce: str = ""
    """Drawn by each start of its agent, so that a new one is not taken for the old; empty: it has never been there, or
    is lost."""
    last_nonce: str = ""
    """The agent that was lost last had this one."""
    last_heard: float = 0.0
    """When that one was heard last, by our clock."""
    hung_up: bool = False
    """Its end of the last channel was closed there: what ran there has ended, and its agent may have."""
    kept_out: float = 0.0
    """Until then nobody tries to reach another in its place, by our clock."""
    former: set[str] = field(default_factory=set)
    """Those of agents in whose place another one is."""
    problem: Problem = field(default_factory=lambda: Problem("name", "not looked up yet"))
    problem_since: float = 0.0
    """On our clock; 0: nothing has been tried yet."""
    identity: Problem | None = None
    """The last time that it was somebody else; kept while later tries fail otherwise."""
    attempts: int = 0
    """Tries that failed since it was last connected."""
    address_since: float = 0.0
    connected: bool = False
    """Both sides have said hello on the present channel."""
    lost: bool = False
    """Nothing is sent to it or taken from it, unless it comes back or is replaced."""
    closed: bool = False
    """Given up for good: nobody tries to reach it any more."""
    printed: float = -math.inf
    """When its part of a run last printed, by our clock, as far as its beats have told."""

    clocks: list[PeerClock] = field(default_factory=list)
    """As it has answered since it was last asked."""

    def __post_init__(self) -> None:
        self.questions = Questions(self.say)

    def say(self, said: Said) -> None:
        """Tell it, now or after the next reconnection, if it is not lost: nothing would ever leave its link."""
        if not self.lost:
            self.link.say(message(said))

    def compare_clock(self, its: float, ours: float, echo: float) -> None:
        """Its clock, ours, and ours as it came back from there."""
        trip = ours - echo
        if trip >= 0:  # else our clock was set back meanwhile
            self.clocks.append(PeerClock(trip, its - (ours - trip / 2)))

    @property
    def index(self) -> int:
        return self.target.index


def workers_of(pod: Pod) -> dict[int, Peer]:
    """Every worker of the job, by index."""
    from agent.decide.keys import JobKeys  # here: cryptography costs 12 ms, and a pod that is alone has no secret

    settings = pod.settings
    keys = JobKeys(pod.job.secret, settings.epoch)
    client = keys.client_private()
    # exec, because some login shells do not become their only command, and would stay on each pod.
    command = f"exec sh {pod.dir.path}/control-channel.sh {pod.dir.path}"
    peers = {}
    for index in range(1, settings.nnodes):
        name = peer_name(settings.hostname_prefix, index, settings.domain_name)
        peers[index] = Peer(Target(index, name, "", settings.ssh_port, keys.host_public(index), client, command))
    return peers

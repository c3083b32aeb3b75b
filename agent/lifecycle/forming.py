"""Forming the cluster: every pod's facts in, the plan out to every pod, before the deadline.

The plan is one order for everything (hostfiles, ranks, MASTER_ADDR), so it is made once, from all facts, by one pod. No
pod starts anything before all have confirmed it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.decide.facts import Facts
from agent.decide.messages import Cluster, TellPlan
from agent.decide.order import make_plan
from agent.decide.plan import Plan, moves, to_wire
from agent.errors import IdentityRefused, PeersMissing
from agent.lifecycle.channel.peer import Peer
from agent.lifecycle.channel.roster import Roster
from agent.lifecycle.pod.plan_files import keep_plan
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.waits import REPORT_SECONDS

STATE_SECONDS = 1.0
"""How often the pod's state says who is missing. People look at it while they wait."""
TELL_EVERY = 5
"""The workers that are here are told every so many times as well."""
SHOWN_MISSING = 12
"""Lines of one report. `a4-agent peers` shows all."""
NAMED_MISSING = 8
"""With more, equal reasons share a line, and names would make each another one."""
TOLD_MISSING = 64
"""How many missing pods the workers are told of: with 512 of 1,024 missing, all of them would be 17 MB each time."""


@dataclass
class Forming:
    """From the first look-up to a plan that every pod has confirmed; then `formed()` is called.

    Later a pod that was lost may come back, or another one in its place: `joined` gets its index when it has the plan,
    which is made anew, and `formed()` is called again.

    Raises PeersMissing or IdentityRefused into the loop when the deadline passes first.
    """

    _pod: Pod
    _roster: Roster
    _gather_facts: Callable[[Callable[[Facts], None]], None]
    _formed: Callable[[], None]
    _joined: Callable[[int], None]

    def __post_init__(self) -> None:
        self._machine = self._pod.machine
        self._settings = self._pod.settings
        self._unconfirmed: set[int] = set()
        """Workers that were sent the plan and have not said that they have it."""
        self._unknown = set(range(self._settings.nnodes))
        """Pods that have not told their facts, or not since they were lost."""
        self._newcomers: set[int] = set()
        """Workers that were lost, are connected again, and do not have the plan."""
        self._given_up = False
        self._kept = 0
        """How often the state was kept; workers are told every TELL_EVERY times."""
        self.over = False
        """Formed, or given up: no more reports, no deadline."""

    def start(self) -> None:
        self._pod.state.phase("forming")
        self._gather_facts(self.take)
        self._machine.later(self._settings.peer_timeout, self._deadline_passed)
        # Pods of one job start within seconds of each other: who is missing after 10 s is worth a line in the log.
        self._machine.later(10.0, self._report)
        self._machine.later(STATE_SECONDS, self._keep_state)

    def take(self, facts: Facts) -> None:
        """Take the facts of this pod or of a worker."""
        if not self._given_up:
            self._pod.heard[facts.index] = facts
            self._unknown.discard(facts.index)
            self._plan_if_all_are_here()

    def told(self, peer: Peer, facts: Facts) -> None:
        """A worker tells its facts; one that speaks of another pod is lost."""
        if facts.index == peer.index:
            self.take(facts)
        else:
            self._roster.lose_for_good(peer, f"it sent a message this release cannot read: facts of pod {facts.index}")

    def planned(self, index: int) -> None:
        """A worker has the plan."""
        self._unconfirmed.discard(index)
        if index in self._newcomers and index not in self._unknown:
            self._newcomers.discard(index)
            self._joined(index)
        self._end_if_confirmed()

    def lost(self, index: int) -> None:
        """A worker is lost: nobody waits for it to confirm the plan."""
        self._newcomers.discard(index)
        if index in self._unconfirmed:
            self._unconfirmed.discard(index)
            self._end_if_confirmed()

    def greeted(self, index: int, anew: bool) -> None:
        """A worker is connected; started `anew`, it has its facts to tell again."""
        if anew:
            self._unknown.add(index)
            if self._pod.known.plan is None:
                self._pod.heard.pop(index, None)
            else:  # until the new one has told its facts, the plan stays as it is
                self._newcomers.add(index)
        self._plan_if_all_are_here()

    def _plan_if_all_are_here(self) -> None:
        """Make the plan once all facts are known and nobody is absent: after it, an absent pod is a lost one."""
        if self._given_up:
            return
        if self._pod.known.plan is not None:
            if self._newcomers and not self._newcomers & self._unknown:
                self._plan_anew(self._pod.known.plan)
        elif not self._unknown and not self._roster.absent():
            self._pod.state.event("peers-ready")
            self._plan()

    def _plan(self) -> None:
        plan = self._made()
        for warning in plan.warnings:
            self._pod.log.warning(warning)
        self._roster.committed = True
        self._unconfirmed = set(self._roster.peers)
        self._roster.say(TellPlan(to_wire(plan)))
        keep_plan(self._pod, plan)
        self._end_if_confirmed()

    def _plan_anew(self, before: Plan) -> None:
        """With the newcomers, and with what was last known of pods that are still lost."""
        plan = self._made()
        changes = plan != before
        told = {i for i, peer in self._roster.peers.items() if not peer.lost} if changes else self._newcomers
        self._unconfirmed |= told
        self._roster.say(TellPlan(to_wire(plan)), told)
        if changes:
            for line in moves(before, plan):
                self._pod.log.info(line)
            keep_plan(self._pod, plan)

    def _made(self) -> Plan:
        settings = self._settings
        return make_plan(
            self._pod.heard.values(),
            epoch=settings.epoch,
            prefix=settings.hostname_prefix,
            domain=settings.domain_name,
            slots=settings.gpus_per_node,
            topology=self._pod.job.topology,
        )

    def _end_if_confirmed(self) -> None:
        if self._unconfirmed or self._pod.known.plan is None or self._given_up:
            return
        if self.over:
            self._formed()
            return
        self.over = True
        pods = self._settings.nnodes
        seconds = self._machine.now() - self._pod.job.started
        self._pod.state.event("cluster-formed")
        self._pod.log.info(f"the cluster is formed: {pods} of {pods} pods, {seconds:.1f} s after this pod's start")
        self._formed()

    def give_up(self) -> None:
        """The job ends: if the cluster is not formed by now, it never is."""
        self._given_up = self._given_up or not self.over
        self.over = True

    # Waiting

    def waiting_for(self) -> dict[int, str]:
        """Pods without which the cluster is not formed, and why they are missing."""
        absent = self._roster.absent()
        for index in self._roster.peers.keys() - self._pod.heard.keys():
            absent.setdefault(index, "connected, still finding its place")
        for index in self._unconfirmed:
            absent.setdefault(index, "connected, has not confirmed the plan")
        if 0 not in self._pod.heard:
            absent[0] = "this pod itself is still finding its place"
        return dict(sorted(absent.items()))

    def _report(self) -> None:
        if self.over:
            return
        absent = self.waiting_for()
        lines = [f"{self._pod.where(index)}: {why}" for index, why in list(absent.items())[:SHOWN_MISSING]]
        if len(absent) > SHOWN_MISSING:
            lines.append(f"and {len(absent) - SHOWN_MISSING} more: a4-agent peers lists them")
        self._pod.log.info(f"waiting for {len(absent)} of {self._settings.nnodes} pods:")
        for line in lines:
            self._pod.log.info(f"  {line}")
        self._machine.later(REPORT_SECONDS, self._report)

    def _keep_state(self) -> None:
        """Keep who is missing in the state, for `a4-agent status` and `peers`."""
        if self.over:
            return
        missing = self.waiting_for()
        named = {index: self._named(index, why) for index, why in missing.items()}
        self._pod.state.update(missing=named if len(missing) <= NAMED_MISSING else missing)
        self._kept += 1
        if self._kept % TELL_EVERY == 0:
            self._roster.mention(Cluster(missing=dict(list(missing.items())[:TOLD_MISSING])))
        self._machine.later(STATE_SECONDS, self._keep_state)

    def _named(self, index: int, why: str) -> str:
        """The reason, with the name and the node of a pod that was here before."""
        return f"{self._pod.where(index).partition(', ')[2]}: {why}" if index in self._pod.heard else why

    def _deadline_passed(self) -> None:
        """Raises PeersMissing (69), or IdentityRefused (77) where somebody else answered in a pod's place: the first
        may pass by itself, the second is a wrong secret or a wrong address."""
        if self.over:
            return
        absent = self.waiting_for()
        seconds = self._settings.peer_timeout
        text = f"{len(absent)} of {self._settings.nnodes} pods did not join within {seconds:.0f} s"
        reasons = "\n".join(f"{self._pod.where(index)}: {why}" for index, why in absent.items())
        refused = any(peer.identity for peer in self._roster.peers.values() if not peer.connected)
        self.give_up()
        raise (IdentityRefused if refused else PeersMissing)(text, reasons)

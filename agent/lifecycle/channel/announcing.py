"""Telling every pod the one result, and going only when they have it.

Kubernetes looks at each pod's exit code by itself, so all have to end with the same one. A worker whose coordinator
goes before it has the result can only say that its coordinator was lost (75).
"""

from __future__ import annotations

from collections.abc import Callable

from agent.decide.ending import JobEnd
from agent.decide.grace import USUAL
from agent.decide.messages import TellResult
from agent.errors import Exit
from agent.lifecycle.channel.roster import Roster
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.waits import EARLY_SECONDS, SETTLE_SECONDS


class Announcement:
    """`told` is called once: every worker that can hear it has confirmed, or time is up."""

    def __init__(self, pod: Pod, roster: Roster, told: Callable[[], None]) -> None:
        self._pod = pod
        self._roster = roster
        self.stay = True
        """The pods sleep when it is told, and else leave."""
        self._told = told
        self._open: set[int] = set()
        """Workers that have not confirmed it."""
        self._goes_on = False
        self.said: TellResult | None = None
        """What was told."""

    def start(self, end: JobEnd, run_id: str, *, stay: bool, signalled: bool) -> None:
        """Tell all and wait for their answer: `signalled` not for long, as the pod has only its grace time left.

        Before there is a plan it is waited for workers that have never been there too: they are about to start, and
        would wait for a coordinator that has gone. Unless the end is that they were waited for already.
        """
        shares, lease = self._pod.shares, self._pod.settings.lease
        known_only = self._pod.known.plan is not None or end.code in (Exit.PEERS_MISSING, Exit.IDENTITY)
        if known_only:
            # A lease, because a worker whose channel broke just now is back by then, or is lost and counts as told.
            patience = shares.announce if signalled else max(lease, USUAL.announce)
        else:
            patience = SETTLE_SECONDS if signalled else EARLY_SECONDS  # workers most likely were told, too
        live = {index: peer for index, peer in self._roster.peers.items() if not peer.lost}
        self._open = {index for index, peer in live.items() if peer.nonce or not known_only}
        self._goes_on, self.stay = True, stay
        self.said = TellResult(end, run_id, stay)
        self._roster.say(self.said)
        self._pod.machine.later(patience, self._time_is_up)
        self._end_if_confirmed()

    def confirmed(self, index: int) -> None:
        """This worker has the result, or is gone, before there was one or since. One that does not stay is let go."""
        self._open.discard(index)
        if not self.stay:
            # Its agent ends now, so nobody may dial it again, or take its broken channel for a loss.
            self._roster.drop(index, "it has the result")
        self._end_if_confirmed()

    def _time_is_up(self) -> None:
        if not self._goes_on:
            return
        # One without a nonce has never been there, so it has missed nothing.
        missed = [index for index in sorted(self._open) if self._roster.peers[index].nonce]
        if missed:
            self._pod.log.warning(f"the result was not confirmed by pods {', '.join(map(str, missed))}")
        self._open.clear()
        self._end_if_confirmed()

    def _end_if_confirmed(self) -> None:
        if not self._open and self._goes_on:
            self._goes_on = False
            self._told()

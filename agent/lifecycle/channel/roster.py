"""The coordinator's view of its peers: find them, hold a channel to each, notice when one is gone.

A peer's name is looked up, its sshd is dialled, it says hello, and from then on it is connected, with a beat now and
then. Whatever breaks on this way leads back to a later try. Once the plan is made, a worker that is silent for a lease,
or whose agent is started anew, is lost; one that speaks another language is lost at any time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from agent import __version__
from agent.decide import messages
from agent.decide.ending import JobEnd
from agent.decide.fence import clear_seconds
from agent.decide.messages import Said, line_of, message
from agent.errors import Exit, PeerLost
from agent.lifecycle.channel.link import SILENT_BEATS, Link, OwnBeats, beat_seconds
from agent.lifecycle.channel.lost_pods import LostPods
from agent.lifecycle.channel.peer import Peer, PeerClock, workers_of
from agent.lifecycle.channel.questions import refusal
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.waits import Once
from agent.log import utc
from agent.machine.api import IDENTITY_PROBLEMS, Channel, Problem

FIRST_SECONDS, MOST_SECONDS = 0.05, 1.0
"""Between two tries at one peer: quick at first, since pods start together, then once a second."""
GROWTH, MOST_GROWTHS = 1.5, 8
SILENT = Problem("agent", "logged in, but no a4-agent answers there")


class PodEvents(NamedTuple):
    """What the coordinator wants to hear of, and what only its own pod can say."""

    message: Callable[[Peer, Said], None]
    lost: Callable[[int, str], None]
    """Told of a worker that was not heard for a lease, or was started anew, after the plan was made."""
    greeted: Callable[[int, bool], None]
    """Connected, again or for the first time; True: it was lost, or its agent was started anew: nothing it said
    counts."""
    told: Callable[[Said], None]
    """Pod 0, which takes part in runs as any other, is told the same messages."""
    printed: Callable[[], float | None]
    """When its own part of a run last printed; None: it has none."""


class Roster:
    """The pods of the job: workers over their channels, this pod by its loop. It ends no wait by itself: deadlines are
    the coordinator's."""

    def __init__(self, pod: Pod, tell: PodEvents) -> None:
        settings = pod.settings
        self.peers: dict[int, Peer] = {}
        """Workers by index. Empty before `start`, and for a pod that is alone."""
        self._pod = pod
        self._machine = pod.machine
        self._hello = messages.Hello(messages.CHANNEL_VERSION, pod.nonce, __version__, settings.epoch)
        self._tell = tell
        self._beat = beat_seconds(settings.lease)
        self._own_beats = OwnBeats(self._beat, pod.log)
        self._closed = False
        self._all_hear: Once | None = None
        """Somebody waits for that."""
        self.committed = False
        """The plan is made: from here on a pod that goes, or starts anew, is lost."""
        self._lets_in = settings.lives > 0
        """A lost worker may come back, and another agent with its index take its place."""
        self.lost = LostPods(pod, self.say)

    def start(self) -> None:
        """Begin to look for them. A pod that is alone looks for nobody."""
        if self._pod.alone:
            return
        # Each channel takes three descriptors, and the usual limit is 1,024.
        self._machine.raise_file_limit()
        self.peers = workers_of(self._pod)
        self._look_up(list(self.peers.values()))
        self._machine.later(self._beat, self._beats)

    def say(self, said: Said, indices: Collection[int] | None = None) -> None:
        """Tell these pods, or all workers, but those that are lost: now or after their next reconnection."""
        if indices is not None and 0 in indices:
            # By the loop: runs count on it that nobody answers from inside the call that told him something.
            self._machine.later(0, lambda: self._tell.told(said))
        line = line_of(message(said))
        # `filter` leaves out 0, this pod itself.
        for index in self.peers if indices is None else filter(None, indices):
            if not self.peers[index].lost:
                self.peers[index].link.say_encoded(line)

    def when_all_hear(self, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` once no worker is cut off that is not lost: all hear what was said. After so long at most."""
        self._all_hear = all_hear = Once()
        all_hear.when(action)
        self._machine.later(seconds, all_hear.happen)
        self._look_who_hears()

    def _look_who_hears(self) -> None:
        cut_off = any(peer.nonce and not peer.lost and not peer.connected for peer in self.peers.values())
        if self._all_hear is not None and not cut_off:
            self._all_hear.happen()

    def mention(self, said: Said) -> None:
        """Tell every worker that is connected now; the message is worth nothing later."""
        line = message(said)
        for peer in self.peers.values():
            if peer.connected and not peer.lost:
                peer.link.mention(line)

    def close(self) -> None:
        self._closed = True
        for peer in self.peers.values():
            peer.link.detach()

    def absent(self) -> dict[int, str]:
        """Index and reason of every worker that cannot be talked to now, lost ones included."""
        return {i: self._reason(peer) for i, peer in self.peers.items() if not peer.connected}

    def printed(self, indices: Collection[int]) -> float:
        """When one of these pods was last heard to print, on this pod's clock; -inf when none was."""
        own = self._tell.printed() if 0 in indices else None
        heard = [self.peers[index].printed for index in indices if index in self.peers]
        return max(heard if own is None else [own, *heard], default=-math.inf)

    def compare_clocks(self, done: Callable[[dict[int, PeerClock]], None]) -> None:
        """Ask all workers what time it is, and again; `done` gets of each the answer that was the quickest."""

        def ask() -> None:
            self.mention(messages.Beat(clock=self._machine.wall()))

        for peer in self.peers.values():
            peer.clocks.clear()
        # Three, because one may wait for a busy agent. The quickest has the least error, and `min` compares the trip
        # first.
        for after in (0.0, 0.1, 0.2):
            self._machine.later(after, ask)
        self._machine.later(0.5, lambda: done({i: min(peer.clocks) for i, peer in self.peers.items() if peer.clocks}))

    def reachable(self, index: int) -> Peer:
        """A worker that can be talked to. Raises PeerLost."""
        peer = self.peers.get(index)
        if peer is None or peer.lost:
            why = self.lost.reasons().get(index)
            raise PeerLost(f"{self._pod.where(index)}, is lost: {why}" if why else f"there is no pod {index}")
        return peer

    def drop(self, index: int, reason: str) -> None:
        """Give a worker up for good, without a word to the coordinator, which has decided it."""
        peer = self.peers[index]
        peer.closed = True
        peer.link.detach()
        self._set_lost(peer, reason)

    def expect(self, index: int, reason: str) -> None:
        """Give a worker up, but let it or its replacement in, where that is wished for."""
        peer = self.peers[index]
        if not self._lets_in or peer.closed:
            self.drop(index, reason)
            return
        # Without a channel the next try is under way: a second chain of tries would dial the pod twice as often.
        tries = peer.link.channel is None
        peer.link.detach()
        self._set_lost(peer, reason)
        peer.last_heard = peer.link.heard
        # Both sides begin anew: what was said meanwhile is for nobody.
        peer.link = Link()
        # A pod that is lost twice, with nobody in its place in between, keeps its last nonce.
        peer.last_nonce, peer.nonce = peer.nonce or peer.last_nonce, ""
        peer.attempts = 0
        if not tries:
            self._failed(peer, peer.problem)

    def keep_out(self, index: int) -> None:
        """Let no replacement of this lost worker in before all that it ran has ended: it may be alive, and cut off."""
        if not self._lets_in:
            return
        peer = self.peers[index]
        silent = self._machine.now() - peer.last_heard
        # Who cannot be reached does not hang up. Kubernetes replaces a pod that has hung up within a lease when its
        # containers have ended: a node that it does not hear it gives up later.
        left = 0.0 if peer.hung_up else clear_seconds(self._pod.settings.lease, silent)
        peer.kept_out = self._machine.now() + left
        if left:
            self._pod.log.info(
                f"pod {index} may still run its part of a run: no other pod takes its place for {left:.0f} s"
            )

    def _set_lost(self, peer: Peer, reason: str) -> None:
        peer.lost = True
        peer.connected = False
        self._note(peer, Problem("agent", reason))
        peer.questions.give_up(refusal(PeerLost(f"{self._pod.where(peer.index)}, is lost: {reason}")))
        # By the loop, because it may end this pod, and the caller has more to do.
        self._machine.later(0, self._look_who_hears)

    # Finding and connecting

    def _look_up(self, peers: Sequence[Peer]) -> None:
        for peer in peers:
            peer.problem_since = peer.problem_since or self._machine.now()
        by_name = {peer.target.name: peer for peer in peers}

        def named(name: str, answer: str | Problem) -> None:
            peer = by_name[name]
            if isinstance(answer, Problem):
                self._failed(peer, answer)
                return
            peer.target, peer.address_since = peer.target._replace(address=answer), self._machine.now()
            self._dial(peer)

        self._machine.resolve(list(by_name), named)

    def _dial(self, peer: Peer) -> None:
        """Open a channel; `_dialed` may come when nobody wants it any more."""
        if self._closed or peer.closed:
            return
        self._machine.connect(peer.target, lambda result: self._dialed(peer, result))

    def _dialed(self, peer: Peer, result: Channel | Problem) -> None:
        if isinstance(result, Problem):
            self._failed(peer, result)
            return
        if self._closed or peer.closed:
            result.close()
            return

        def ended(reason: str) -> None:
            if peer.link.channel is result:
                # A channel without a hello may have been turned away by an agent that lives.
                peer.hung_up = peer.connected
                self._drop_channel(peer, reason)

        def look() -> None:
            """A login says nothing of the agent behind it, which may hang: it has its time to say hello."""
            if peer.link.channel is result and not peer.connected:
                peer.link.detach()
                self._failed(peer, peer.problem)

        peer.link.attach(result)
        result.receive(lambda line: self._line(peer, result, line), ended)
        peer.problem, peer.problem_since = SILENT, self._machine.now()
        peer.link.mention(message(self._hello._replace(index=peer.index, knows=peer.nonce)))
        # After the login an agent that has just started may still be importing.
        self._machine.later(15.0, look)

    def _failed(self, peer: Peer, problem: Problem) -> None:
        """Note why and try again a little later; the address anew if it may be a wrong one."""
        self._note(peer, problem)
        if self._closed or peer.closed:
            return
        # MOST_GROWTHS, because 1.5 ** 1751 raises OverflowError, which half an hour of tries at an absent pod reaches.
        pause = min(FIRST_SECONDS * GROWTH ** min(peer.attempts, MOST_GROWTHS), MOST_SECONDS)
        peer.attempts += 1
        # The loop waits, not tenacity, and what is random keeps a thousand peers from being tried at the same moment.
        self._machine.later(pause + random.uniform(0, FIRST_SECONDS), lambda: self._try_again(peer))

    def _try_again(self, peer: Peer) -> None:
        if self._closed or peer.closed:
            return
        if (left := peer.kept_out - self._machine.now()) > 0:
            self._machine.later(left, lambda: self._try_again(peer))
            return
        # The pod may have moved since its address was looked up, one that was there and is gone most likely.
        gone = self._lets_in and bool(peer.nonce or peer.last_nonce)
        stale = self._machine.now() - peer.address_since > (0.5 if gone else 5.0)
        if not peer.target.address or stale or peer.problem.kind in IDENTITY_PROBLEMS:
            self._look_up([peer])
        else:
            self._dial(peer)

    def _note(self, peer: Peer, problem: Problem) -> None:
        """Keep the latest reason, and since when it has been of this kind, for reports and for the error at the end."""
        if problem.kind != peer.problem.kind:
            peer.problem_since = self._machine.now()
        if problem != peer.problem:
            self._pod.log.debug(f"pod {peer.index}: {problem.text}")
        peer.problem = problem
        if problem.kind in IDENTITY_PROBLEMS:
            peer.identity = problem

    def _reason(self, peer: Peer) -> str:
        """Why it is not here: first, of one that was, for how long nothing has come from it."""
        now = self._machine.now()
        if peer.nonce:
            silent = now - peer.link.heard
            text = f"silent for {silent:.0f} s, last heard {utc(self._machine.wall() - silent)}: {peer.problem.text}"
        else:
            since = f" (for {now - peer.problem_since:.0f} s)" if peer.problem_since else ""
            text = f"{peer.problem.text}{since}"
        if peer.identity and peer.identity is not peer.problem:
            text += f"; before that: {peer.identity.text}"
        return text

    # Talking

    def _line(self, peer: Peer, channel: Channel, line: bytes) -> None:
        """What cannot be read at all may be a broken channel, which is replaced. What can be read and makes no sense is
        another release, which no new channel would mend: that worker is lost."""
        # What a replaced channel still brings comes again on the new one.
        if peer.link.channel is not channel:
            return
        try:
            found = messages.decode(line)
        except ValueError as error:
            self._drop_channel(peer, f"it sent what is not a message ({error})")
            return
        if found["type"] == "hello":
            self._greeted(peer, found)
            return
        if not (peer.connected and peer.link.take(found, self._machine.now())):
            return
        try:
            said = messages.heard(found, messages.WORKER_SAYS)
        except ValueError as error:
            self.lose_for_good(peer, f"it sent a message this release cannot read: {found['type']}, {error}")
            return
        if isinstance(said, messages.Beat):
            self._beaten(peer, said)
        elif said is not None:
            self._tell.message(peer, said)

    def _beaten(self, peer: Peer, beat: messages.Beat) -> None:
        if beat.number is not None:
            peer.link.mention(message(messages.Beat(heard=beat.number)))  # at once: its fence waits for that
        if beat.quiet is not None:
            peer.printed = self._machine.now() - beat.quiet
        if beat.clock is not None and beat.echo is not None:
            peer.compare_clock(beat.clock, self._machine.wall(), beat.echo)

    def _greeted(self, peer: Peer, found: messages.Message) -> None:
        """An agent says hello: the same as before, which goes on where the last channel broke, or another one."""
        if found.get("v") != messages.CHANNEL_VERSION:
            self._drop_channel(
                peer, f"its a4-agent speaks control channel {found.get('v')}, this one {messages.CHANNEL_VERSION}"
            )
            return
        nonce = str(found.get("nonce"))
        # A pod that was cut off is back, but its index belongs to another pod now.
        if nonce in peer.former:
            end = JobEnd(Exit.TRY_AGAIN, "another pod has this pod's index now", self._pod.where(peer.index))
            peer.link.mention(message(messages.TellResult(end)))
            self._drop_channel(peer, "an agent in whose place another one is answers here")
            return
        if back := peer.lost:
            if peer.last_nonce not in ("", nonce):
                peer.former.add(peer.last_nonce)
            peer.lost = False
        anew = bool(peer.nonce) and nonce != peer.nonce
        if anew and self.committed:
            self.lose(peer, "its agent was started anew after the plan was made")
            return
        if anew:  # nothing that was said to the one before counts
            channel = peer.link.channel
            assert channel is not None
            peer.link = Link()
            peer.link.attach(channel)
        peer.nonce = nonce
        peer.connected = True
        peer.hung_up = False
        peer.attempts = 0
        peer.identity = None
        peer.link.take(found, self._machine.now())
        peer.link.resend()
        if self.committed:
            peer.link.mention(message(messages.Beat()))  # a hello alone may not count
        self._tell.greeted(peer.index, anew or back)
        self._look_who_hears()

    def _drop_channel(self, peer: Peer, reason: str) -> None:
        if peer.connected:
            peer.problem_since = self._machine.now()  # until now there was none
        peer.link.detach()
        peer.connected = False
        self._failed(peer, Problem("agent", reason))

    # Beats and leases

    def _beats(self) -> None:
        """Say that this pod lives, and judge the others: three missed beats end a channel, a silent lease a pod."""
        if self._closed:
            return
        self._machine.later(self._beat, self._beats)  # first: whatever breaks below, the next beat comes
        now = self._machine.now()
        late = self._own_beats.beat(now)
        for peer in self.peers.values():
            # Before the judgement, else a pod that thaws would lose all others at once.
            peer.link.excuse(late, now)
            silent = peer.link.silent(now)
            if peer.connected and silent > SILENT_BEATS * self._beat:
                self._drop_channel(peer, "its beats stopped")
            if peer.connected:
                peer.link.mention(message(messages.Beat()))
            if self.committed and not peer.lost and silent > self._pod.settings.lease:
                self.lose(peer, self._reason(peer))

    def lose(self, peer: Peer, reason: str) -> None:
        """Give a worker up and tell the coordinator."""
        if not self._lets_in:
            self.lose_for_good(peer, reason)
            return
        self.expect(peer.index, reason)
        self._tell.lost(peer.index, reason)

    def lose_for_good(self, peer: Peer, reason: str) -> None:
        """The same, and tell the worker itself if it can be told: without the plan it would wait on."""
        end = JobEnd(Exit.TRY_AGAIN, "this pod is lost to the job", self._pod.where(peer.index), reason)
        peer.link.mention(message(messages.TellResult(end)))
        self.drop(peer.index, reason)
        self._tell.lost(peer.index, reason)

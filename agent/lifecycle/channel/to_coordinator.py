"""A worker's side of the control channel: the wait for it, channels that open and close, what the coordinator says."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from agent import __version__
from agent.cutting import visible
from agent.decide import messages
from agent.decide.messages import Said, message
from agent.decide.os_refusals import refused
from agent.decide.part_end import bounded
from agent.errors import AgentError, Exit, PeerLost, PeersMissing
from agent.lifecycle.channel.link import Link, OwnBeats, beat_seconds
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.waits import EARLY_SECONDS, LAST_WORDS_SECONDS, REPORT_SECONDS
from agent.log import utc
from agent.machine.api import Channel


class CoordinatorEvents(NamedTuple):
    """What the worker wants to hear."""

    said: Callable[[Said | None], None]
    """The coordinator said this; None: something that newer releases say and that can be ignored."""
    met: Callable[[], None]
    """There is a coordinator, or another one: it knows nothing of this pod yet."""
    greeted: Callable[[], None]
    """A channel is open, with the coordinator that is known."""
    closed: Callable[[str], None]
    """The channel broke, for this reason. The coordinator opens it anew if it can."""
    failed: Callable[[AgentError], None]
    """There is no going on with this coordinator."""
    bound: Callable[[], bool]
    """Whether this pod belongs to the coordinator that it has: another one is refused."""


class ToCoordinator:
    """The conversation with the one coordinator of this pod.

    Several channels may be open for a moment: one that broke without a word, and the one that replaces it. The one that
    said hello last counts.
    """

    def __init__(self, pod: Pod, callbacks: CoordinatorEvents) -> None:
        self._pod = pod
        self._machine = pod.machine
        self._tell = callbacks
        self.link = Link()
        self._own_beats = OwnBeats(beat_seconds(pod.settings.lease), pod.log)
        self._nonce = ""
        """The coordinator's; empty until one has come."""
        self.awaits_plan = True
        """False once it is here, or this pod no longer waits for it."""

    @property
    def met(self) -> bool:
        """Whether a coordinator has ever come."""
        return bool(self._nonce)

    def seconds_to_be_heard(self, code: int, *, listens: bool) -> float:
        """How long a pod that ends with this code waits to be heard: without a channel only by a coordinator that has
        not come yet, and can come, as sshd `listens`."""
        if self.link.channel is not None:
            return LAST_WORDS_SECONDS
        if self.met or code == Exit.PEERS_MISSING:
            return 0.0
        if code in (Exit.TERMINATED, Exit.INTERRUPTED):
            # A coordinator that is there tries once a second: a pod that was told to end waits no longer.
            return min(3.0, self._pod.shares.leave)
        return EARLY_SECONDS if listens else 0.0

    def silent_seconds(self) -> float:
        """How long the coordinator has not been heard while this agent ran."""
        now = self._machine.now()
        return self.link.silent(now) - self._own_beats.late(now)

    def silence(self) -> str:
        """How long it has not been heard, in words."""
        silent = self._machine.now() - self.link.heard
        return f"silent for {silent:.0f} s, last heard {utc(self._machine.wall() - silent)}"

    def beat(self, quiet: float | None) -> None:
        """Say that this pod lives; `quiet`: how many seconds ago a program printed."""
        now = self._machine.now()
        self.link.excuse(self._own_beats.beat(now), now)
        self.mention(messages.Beat(quiet, number=self._pod.fence.number_beat()))

    def say(self, said: Said) -> None:
        """Send what must arrive, of the end of a part what a message can hold: a verbose workload can exceed that. What
        is only good to know is left out if it is too long. Raises AgentError for anything else that is too long."""
        if isinstance(said, messages.Done) and (end := bounded(said.end)) is not said.end:
            self._pod.log.warning(f"what {said.run} left is too long for a message: the coordinator gets a part of it")
            said = messages.Done(said.run, end)
        try:
            self.link.say(message(said))
        except AgentError as error:
            brief = messages.brief(said)
            if brief is None:
                raise
            self._pod.log.warning(f"the coordinator hears less of this pod: {error.what}")
            self.link.say(message(brief))

    def mention(self, said: Said) -> None:
        """Send what is worth nothing later."""
        self.link.mention(message(said))

    def accept(self) -> None:
        """Let it come. Raises SystemFault."""
        try:
            self._machine.accept(self._pod.dir.channels, self._opened)
        except OSError as error:
            raise refused(f"{self._pod.dir.channels} cannot be used", error) from error

    def _opened(self, channel: Channel) -> None:
        """Somebody has come through this pod's sshd."""

        def ended(reason: str) -> None:
            if self.link.channel is channel:  # else it was replaced, or turned away
                self.link.detach()
                self._tell.closed(reason)

        channel.receive(lambda line: self._line(channel, line), ended)

    def not_understood(self, kind: str, error: ValueError) -> None:
        """End this pod: the coordinator speaks another language."""
        what = f"the coordinator sent a message this release cannot read: {kind}, {error}"
        self._tell.failed(PeerLost(what, "do all pods run the same release?"))

    def _line(self, channel: Channel, line: bytes) -> None:
        # First, because an agent that stood still may read here, too late, an acknowledgement that came in time.
        self._pod.fence.judge()
        try:
            found = messages.decode(line)
        except ValueError as error:
            self._pod.log.warning(f"the coordinator sent what is not a message: {error}")
            channel.close()
            return
        if found["type"] == "hello":
            self._hello(channel, found)
        elif channel is self.link.channel and self.link.take(found, self._machine.now()):
            try:
                said = messages.heard(found, messages.COORDINATOR_SAYS)
            except ValueError as error:
                self.not_understood(found["type"], error)
            else:
                if isinstance(said, messages.Beat) and said.clock is not None:
                    self.mention(messages.Beat(clock=self._machine.wall(), echo=said.clock))
                if isinstance(said, messages.Beat) and said.heard is not None:
                    self._pod.fence.acknowledged(said.heard)
                self._tell.said(said)

    def _hello(self, channel: Channel, found: messages.Message) -> None:
        """Take a coordinator, the known one or, while no run has begun, another. A pod 0 that was started anew must not
        take over what the one before has started: it knows nothing of it."""
        settings = self._pod.settings
        wanted = (messages.CHANNEL_VERSION, settings.index, settings.epoch)
        if (found.get("v"), found.get("index"), found.get("epoch")) != wanted:
            of = f"of epoch {visible(str(found.get('epoch')))} for pod {visible(str(found.get('index')))}"
            version = visible(str(found.get("v")))
            self._pod.log.warning(f"a coordinator {of} with control channel {version} was turned away")
            channel.close()
            return
        nonce = str(found.get("nonce"))
        if nonce != self._nonce:
            if self._nonce and self._tell.bound():
                channel.close()
                self._tell.failed(PeerLost("another coordinator took over: the one of this run is gone"))
                return
            self._nonce = nonce
            self.link.detach()
            self.link = Link()
            self._tell.met()
        elif found.get("knows") != self._pod.nonce:
            # It has not heard this agent yet, or has given it up as lost: both sides begin anew.
            self.link.detach()
            self.link = Link()
            self._tell.met()
        self.link.attach(channel)
        if found.get("knows") != self._pod.nonce:
            found = {**found, "seen": 0}  # it has heard an earlier agent of this pod, not this one
        self.link.take(found, self._machine.now())
        # Before the rest, because pod 0 drops all that comes on a channel before its hello.
        self.mention(messages.Hello(messages.CHANNEL_VERSION, self._pod.nonce, __version__))
        self.link.resend()
        self._tell.greeted()

    # The time before the plan

    def await_plan(self) -> None:
        """`failed` gets PeersMissing when A4_PEER_TIMEOUT_SECONDS have passed and the coordinator is not heard: it has
        not come, or it has gone and nobody has replaced it.

        Workers are contacted, they contact nobody: a worker that cannot be reached has no other way to notice it.
        """
        self._machine.later(self._pod.settings.peer_timeout, self._time_is_up)
        self._machine.later(REPORT_SECONDS, self._report)

    def _report(self) -> None:
        if not self.awaits_plan:
            return
        if self.link.channel is None:
            silent = f"; {self.silence()}" if self.met else ""
            self._pod.log.info(f"waiting for the coordinator to connect{silent}")
        self._machine.later(REPORT_SECONDS, self._report)

    def _time_is_up(self) -> None:
        """A coordinator that is heard has a deadline of its own, which may be later."""
        if not self.awaits_plan:
            return
        pod, settings, silent = self._pod, self._pod.settings, self.silent_seconds()
        if self.met and silent <= settings.lease:
            # One beat later, because the next one may be on its way when the lease ends.
            self._machine.later(settings.lease - silent + beat_seconds(settings.lease), self._time_is_up)
            return
        limit = f"{settings.peer_timeout:.0f} s"
        if self.met:
            what = f"the coordinator has been {self.silence()}, and there is no plan after {limit}"
            self._tell.failed(PeersMissing(what, f"look at {pod.where(0)}: it was lost while the cluster formed"))
            return
        address = f"{pod.known.interface.address}:{settings.ssh_port}"
        self._tell.failed(
            PeersMissing(
                f"the coordinator did not connect within {limit}",
                f"sshd listens on {address}. The log of {pod.where(0)} says why it was not reached; "
                "a pod whose secret or epoch differs from the others' is refused",
            )
        )

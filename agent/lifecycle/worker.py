"""A worker pod: wait for the coordinator, do one's part, end with the job's code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from agent.decide.ending import JobEnd, from_bug, from_error, from_signal, is_told, masked
from agent.decide.facts import Facts
from agent.decide.messages import (
    Answer,
    Ask,
    AskEvidence,
    Beat,
    Bye,
    Cluster,
    Done,
    End,
    Go,
    Inventory,
    Planned,
    Prepare,
    Result,
    RunNoted,
    Said,
    SaidOfPart,
    SendPlan,
    Stop,
    Stopping,
    TellFacts,
)
from agent.decide.os_refusals import refused
from agent.decide.part_end import PartEnd, bounded
from agent.decide.plan import from_wire
from agent.decide.pod_state import RunSummary
from agent.errors import AgentError, Exit, PeerLost, PeersMissing
from agent.lifecycle.channel.command_socket import CommandSocket, handled
from agent.lifecycle.channel.link import beat_seconds
from agent.lifecycle.channel.questions import Answer as Reply
from agent.lifecycle.channel.questions import Questions, refusal
from agent.lifecycle.channel.to_coordinator import Callbacks, ToCoordinator
from agent.lifecycle.keeping.results_check import ResultsCheck
from agent.lifecycle.pod.leaving import Leaving
from agent.lifecycle.pod.plan_files import keep_plan
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.pod.preparing import Preparing
from agent.lifecycle.runs.noted import note_run
from agent.machine.api import Timer

if TYPE_CHECKING:
    from agent.lifecycle.runs.own_parts import Parts

REPORT_SECONDS = 30.0
EARLY_SECONDS = 20.0
"""How long a pod that cannot go on waits for a coordinator that has not come yet, to tell it."""
TOLD_EARLY_SECONDS = 3.0
"""The same for a pod that was told to end: a coordinator that is there tries once a second."""
LAST_WORDS_SECONDS = 2.0
"""How long the pod's end waits for the coordinator to read everything and close the channel."""


class Life(IntEnum):
    """How far this pod's life is. It never goes back."""

    LIVING = 0
    ENDING = 1
    """It ends by itself: its parts of runs are ended, and the coordinator hears why."""
    LEAVING = 2
    """The end is certain; what still runs here is ended."""
    SILENT = 3
    """Nothing is left but to be heard."""


class Worker:
    """Answers the coordinator; decides nothing for the job."""

    def __init__(self, pod: Pod) -> None:
        self._pod = pod
        self._machine = pod.machine
        self._settings = pod.settings
        self._preparing = Preparing(pod)
        self._leaving = Leaving(pod, self._preparing)
        self._results_check = ResultsCheck(pod, self.fail)
        self.coordinator = ToCoordinator(
            pod,
            Callbacks(
                said=self._message,
                met=self._met,
                greeted=self._greeted,
                closed=self._closed,
                failed=self.fail,
                bound=lambda: self._begun or self._end is not None,
            ),
        )
        self._say = self.coordinator.say
        self._questions = Questions(self._say)
        self._begun = False
        """A run has begun: from here on this pod belongs to its coordinator."""
        self._life = Life.LIVING
        self._end: JobEnd | None = None
        """The job's."""
        self._own_end: JobEnd | None = None
        """Why this pod ends by itself, when it does."""
        self._exit: JobEnd | None = None
        """The end that gives this pod its exit code: its own or the job's, whichever came first."""
        self._deadline: Timer | None = None
        self._beat = beat_seconds(pod.settings.lease, pod.settings.nnodes)
        self._signalled = False

    @cached_property
    def _parts(self) -> Parts:
        from agent.lifecycle.runs.own_parts import Parts  # here: a pod is ready before any run begins

        return Parts(self._pod, self._say_of_part)

    def start(self) -> None:
        """Also for a pod that was told to end before: the coordinator has to hear of it. Raises AgentError."""
        pod = self._pod
        self._preparing.prepare()
        CommandSocket(pod, self._handle).open()
        try:
            self._machine.accept(pod.dir.channels, self.coordinator.opened)
        except OSError as error:
            raise refused(f"{pod.dir.channels} cannot be used", error) from error
        self._preparing.start_sshd(self._can_be_heard)
        self._preparing.gather_facts(self._facts_ready)
        self._deadline = self._machine.later(self._settings.peer_timeout, self._nobody_came)
        self._machine.later(REPORT_SECONDS, self._report)
        self._machine.later(self._beat, self._beats)

    def _can_be_heard(self) -> None:
        """The coordinator can come from now on, and hear what is wrong here."""
        self._pod.state.phase("waiting")
        self._results_check.start()

    # Channels

    def _closed(self, reason: str) -> None:
        if self._life >= Life.LEAVING:
            self._last_words_over()
        elif self._end is None:
            self._pod.log.warning(f"lost the channel to the coordinator: {reason}")

    def _met(self) -> None:
        if self._own_end is not None:
            self._say(Stopping(self._own_end))
        elif self._pod.known.facts is not None:
            self._tell_facts(self._pod.known.facts)

    def _greeted(self) -> None:
        if self._deadline is not None:
            self._end_waiting()
            self._pod.state.event("coordinator-connected")
            self._pod.state.phase("forming")
        if self._pod.known.plan is not None:
            self._say_beat()  # a hello alone may not count

    def _facts_ready(self, facts: Facts) -> None:
        if self.coordinator.met:
            self._tell_facts(facts)

    def _tell_facts(self, facts: Facts) -> None:
        self._say(TellFacts(facts, self._secrets()))

    def _secrets(self) -> tuple[str, ...]:
        return tuple(sorted(self._pod.secrets(self._pod.known.environ)))

    # What the coordinator says

    def _message(self, said: Said | None) -> None:
        acts: dict[type, Callable[[Any], None]] = {
            SendPlan: self._plan,
            Prepare: self._prepare_part,
            Go: lambda said: self._parts.go(said.run),
            Stop: lambda said: self._parts.stop(said.run, hurry=said.hurry, told=said.told),
            AskEvidence: lambda said: self._parts.gather_evidence(said.run),
            RunNoted: lambda said: self._run_noted(said.run),
            Cluster: self._cluster,
            Ask: self._asked,
            Answer: self._questions.answered,
            Result: self._result,
            End: lambda said: self._let_go(),
        }
        act = acts.get(type(said))
        if act is not None:
            act(said)

    def _plan(self, told: SendPlan) -> None:
        try:
            plan = from_wire(told.plan)
        except ValueError as error:
            self.coordinator.not_understood("plan", error)
            return
        keep_plan(self._pod, plan)
        self._pod.state.update(formed=self._machine.wall())
        self._pod.state.phase("formed")
        self._say(Planned())
        self._preparing.surroundings.when_ready(lambda: self._preparing.gather_inventory(self._inventory_ready))

    def _cluster(self, cluster: Cluster) -> None:
        if cluster.lost is not None:
            self._pod.state.lose(cluster.lost)
        if cluster.missing is not None:
            self._pod.state.update(missing=cluster.missing)

    def _inventory_ready(self, found: Mapping[str, str]) -> None:
        # No run begins before this is told.
        self._results_check.when_over(lambda: self._say(Inventory(found, self._pod.state.phases, self._secrets())))

    def _run_noted(self, summary: RunSummary) -> None:
        """An exclusive run has begun or ended, with this pod or without."""
        self._begun = True
        note_run(self._pod, summary)
        if summary.until is not None and not summary.first:
            self._pod.run_logs.end()
            self._pod.state.phase("sleeping", code=self._end.code if self._end is not None else 0)

    def _prepare_part(self, told: Prepare) -> None:
        self._begun = True
        if self._life is not Life.LIVING:
            self._part_done(told.run, PartEnd(None, int(Exit.TRY_AGAIN), "this pod is ending"))
            return
        try:
            self._parts.prepare(told.run, told.spec, told.pods)
        except AgentError as error:
            self._part_done(told.run, PartEnd(None, int(error.code), str(error)))

    def _part_done(self, run_id: str, end: PartEnd) -> None:
        told = bounded(end)
        if told is not end:
            self._pod.log.warning(f"what {run_id} left is too long for a message: the coordinator gets a part of it")
        self._say(Done(run_id, told))

    def _say_of_part(self, said: SaidOfPart) -> None:
        self._part_done(*said) if isinstance(said, Done) else self._say(said)

    def _result(self, result: Result) -> None:
        self._end = result.end
        self._exit = self._exit or result.end
        if self._own_end is None:
            self._leaving.report_end(self._end, brief=True)
        self._leaving.record_end(self._end, result.run, self._code())
        self._say(Bye())
        if result.stay and self._own_end is None:
            self._pod.run_logs.end()
            self._pod.state.phase("sleeping", code=self._end.code)
            self._pod.log.info(f"the run ended with exit code {self._end.code}; the cluster stays")
        else:
            self._leave()

    def _let_go(self) -> None:
        """The coordinator needs this pod no longer. After a bug of its own it may not have told the result."""
        if self._end is None:
            self.fail(PeerLost("the coordinator ended the cluster without telling the job's result"))
        else:
            self._leave()

    # What commands ask

    def _handle(self, op: str, fields: dict[str, Any], answer: Reply) -> None:
        """What this pod printed it knows itself; everything else the coordinator knows.

        Such as whether a run that has not begun here is going to.
        """
        own = op == "read" and int(fields["pod"]) == self._settings.index
        if own and (self._parts.has(str(fields["run"])) or self._pod.known.plan is None):
            self._parts.read(fields, answer)
        elif self._pod.known.plan is None:
            raise PeersMissing("the cluster is not formed yet", "a4-agent status shows what this pod waits for")
        elif self._life is not Life.LIVING:
            raise PeerLost("this pod is ending")
        else:
            self._questions.ask(op, {name: value for name, value in fields.items() if name not in ("id", "op")}, answer)

    def _asked(self, ask: Ask) -> None:
        """The coordinator wants to know what this pod printed."""

        def answer(body: dict[str, Any]) -> None:
            self._say(Answer(ask.id, body))

        def handle(op: str, fields: dict[str, Any], answer: Reply) -> None:
            if op != "read":
                raise ValueError("no such request")
            self._parts.read(fields, answer)

        handled(handle, ask.op, dict(ask.fields), answer)

    # Ends

    def fail(self, error: AgentError) -> None:
        """This pod cannot go on."""
        self._end_by_oneself(from_error(error, self._pod.where(self._settings.index)))

    def bug(self, traceback: str) -> None:
        self._end_by_oneself(from_bug(traceback, self._pod.where(self._settings.index)))

    def signalled(self, number: int) -> None:
        """SIGTERM or SIGINT for this pod; again: no more patience."""
        self._leaving.told_to_end()
        if self._life >= Life.LEAVING:
            self._parts.hurry()
            self._last_words_over()
        elif self._signalled:
            self._parts.hurry()
        else:
            self._signalled = True
            self._end_by_oneself(from_signal(number, self._pod.where(self._settings.index)))

    def pass_on(self, number: int) -> None:
        """A signal for the processes of runs in this pod."""
        self._parts.signal(number)

    def _end_by_oneself(self, end: JobEnd) -> None:
        """End this pod for that reason. Its parts of runs end first, so that the coordinator hears of them."""
        if self._life is not Life.LIVING:
            return
        self._life = Life.ENDING
        self._own_end = end = masked(end, self._pod.log.masked)  # the coordinator may not know our secrets yet
        self._exit = self._exit or end
        self._pod.log.error(f"this pod ends: {end}") if self._end is not None else self._leaving.report_end(end)
        self._say(Stopping(end))
        self._parts.stop_all(self._give_up, told=is_told(end))

    def _give_up(self) -> None:
        """Nothing runs here any more: this pod's own end stands unless the job's is known by now."""
        assert self._own_end is not None
        if self._end is None:
            self._end = self._own_end
            self._leaving.record_end(self._own_end)
        self._leave()

    def _leave(self) -> None:
        if self._life >= Life.LEAVING:
            return
        self._life = Life.LEAVING
        self._end_waiting()
        self._questions.give_up(refusal(PeerLost("this pod is ending")))
        self._parts.stop_all(self._say_last_words)

    def _say_last_words(self) -> None:
        """What was said must get out: the coordinator closes the channel when it has read all."""
        self._life = Life.SILENT
        seconds = self._last_words_seconds()
        if seconds:
            self._machine.later(seconds, self._last_words_over)
        else:
            self._last_words_over()

    def _last_words_over(self) -> None:
        if self._life is Life.SILENT:
            self._leaving.finish(self._code())

    def _last_words_seconds(self) -> float:
        """How long this pod can still be heard: without a channel only by a coordinator that has not come yet."""
        if self.coordinator.is_open:
            return LAST_WORDS_SECONDS
        if self.coordinator.met or self._code() == Exit.PEERS_MISSING:
            return 0.0
        if self._code() in (Exit.TERMINATED, Exit.INTERRUPTED):
            return min(TOLD_EARLY_SECONDS, self._pod.shares.leave)
        return EARLY_SECONDS if self._preparing.sshd_listens else 0.0

    def _code(self) -> int:
        """The job's code, except for a pod that was itself told to end, or failed, before there was one."""
        assert self._exit is not None
        return self._exit.code

    def _nobody_came(self) -> None:
        address = f"{self._pod.known.interface.address}:{self._settings.ssh_port}"
        self.fail(
            PeersMissing(
                f"the coordinator did not come within {self._settings.peer_timeout:.0f} s",
                f"sshd listens on {address}. Why it was not reached stands in the log of {self._pod.where(0)}; "
                "a pod whose secret or epoch differs from the others' is refused",
            )
        )

    def _end_waiting(self) -> None:
        """The coordinator has come, or this pod no longer waits for it."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _report(self) -> None:
        if self._deadline is None:
            return
        self._pod.log.info("waiting for the coordinator to connect")
        self._machine.later(REPORT_SECONDS, self._report)

    def _beats(self) -> None:
        if self._life is Life.SILENT:
            return
        self._say_beat()
        silent = self.coordinator.silent_seconds()
        if self.coordinator.met and self._life is Life.LIVING and silent > self._settings.lease:
            self._coordinator_lost(silent)
        self._machine.later(self._beat, self._beats)

    def _say_beat(self) -> None:
        printed = self._parts.printed()
        quiet = None if printed is None else round(self._machine.now() - printed, 3)
        self.coordinator.mention(Beat(quiet))

    def _coordinator_lost(self, silent: float) -> None:
        if self._end is not None:
            self._pod.log.info("the coordinator is gone and the result is known: this pod ends too")
            gone = f"the coordinator, pod 0, has not been heard for {silent:.0f} s: the cluster is over, this pod ends"
            self._questions.give_up(refusal(PeerLost(gone)))
            self._leave()
            return
        self.fail(PeerLost(f"the coordinator has not been heard for {silent:.0f} s"))

"""A worker pod: wait for the coordinator, do one's part, end with the job's code.

A worker never contacts anybody. The coordinator comes through this pod's sshd, whose key it knows beforehand, so
nothing has to be found out or trusted on first use, and the agent opens no other port.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from agent.decide import messages
from agent.decide.ending import JobEnd, code_of_sleeper, from_bug, from_error, from_signal, is_told, masked
from agent.decide.part_end import PartEnd
from agent.decide.plan import from_wire
from agent.errors import AgentError, Exit, PeerLost, PeersMissing
from agent.lifecycle.channel.command_socket import CommandSocket
from agent.lifecycle.channel.link import beat_seconds
from agent.lifecycle.channel.questions import Answer, Questions, refusal
from agent.lifecycle.channel.to_coordinator import CoordinatorEvents, ToCoordinator
from agent.lifecycle.pod.leaving import Leaving
from agent.lifecycle.pod.plan_files import keep_plan
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.pod.preparing import Preparing
from agent.lifecycle.pod.results_check import ResultsCheck

if TYPE_CHECKING:
    from agent.lifecycle.runs.own_parts import Parts


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
    """Answers the coordinator; decides nothing for the job.

    It decides only for itself: that it cannot go on, that it was told to end, or that the coordinator is gone. Two ends
    can meet here, its own and the job's; the one that came first gives the exit code, whatever is heard later.
    """

    def __init__(self, pod: Pod) -> None:
        self._pod = pod
        self._machine = pod.machine
        self._settings = pod.settings
        self._preparing = Preparing(pod)
        self._leaving = Leaving(pod, self._preparing)
        self._results_check = ResultsCheck(pod, self.fail)
        events = CoordinatorEvents(
            said=self._message,
            met=self._introduce,
            greeted=self._greeted,
            closed=self._closed,
            failed=self.fail,
            bound=lambda: self._begun or self._end is not None,
        )
        self.coordinator = ToCoordinator(pod, events)
        self._say = self.coordinator.say
        self._questions = Questions(self._say)
        self._commands = CommandSocket(pod, self._asked)
        self._begun = False
        """A run has begun: from here on this pod belongs to its coordinator."""
        self._life = Life.LIVING
        self._end: JobEnd | None = None
        """The job's."""
        self._own_end: JobEnd | None = None
        """Why this pod ends by itself, when it does."""
        self._exit: JobEnd | None = None
        """The end that gives this pod its exit code: its own or the job's, whichever came first."""
        self._told: JobEnd | None = None
        """Why this pod, or the cluster in its sleep, ends without a release: a signal, or a bug in pod 0."""
        self._inventory_told = False
        """Nothing of it is new to this coordinator."""
        self._is_cut_off = False
        """The coordinator is not heard, and what runs have here was ended for that."""
        self._beat = beat_seconds(pod.settings.lease)
        """Seconds between two signs of life."""

    @cached_property
    def parts(self) -> Parts:
        # Here: a pod is ready sooner. Most pods still wait for others at their first beat, which imports it.
        from agent.lifecycle.runs.own_parts import Parts

        return Parts(self._pod, self._say)

    def start(self) -> None:
        """Also for a pod that was told to end before: the coordinator has to hear of it. Raises AgentError."""
        self._preparing.prepare()
        self._commands.open()
        # Before sshd, because a session that finds no FIFOs ends, and pod 0 has to come again.
        self.coordinator.accept()
        self._preparing.start_sshd(self._can_be_heard)
        self._preparing.gather_facts(lambda facts: self._introduce() if self.coordinator.met else None)
        self.coordinator.await_plan()
        self._machine.later(self._beat, self._beats)

    def _can_be_heard(self) -> None:
        """The coordinator can come from now on, and hear what is wrong here."""
        self._pod.state.phase("waiting")
        self._results_check.start()

    # Channels

    def _closed(self, reason: str) -> None:
        """A broken channel is only news, as another will come; at the end it says that all was read."""
        if self._life >= Life.LEAVING:
            self._last_words_over()
        elif self._end is None:
            self._pod.log.warning(f"lost the channel to the coordinator: {reason}")

    def _introduce(self) -> None:
        """A coordinator that knows nothing of this pod gets what it must know first: that it ends, or its facts."""
        if self._own_end is not None:
            self._say(messages.Stopping(self._own_end))
        elif self._pod.known.facts is not None:
            self._say(messages.TellFacts(self._pod.known.facts, self._secrets()))
            self._inventory_told = False

    def _greeted(self) -> None:
        if "coordinator-connected" not in self._pod.state.phases:
            self._pod.state.event("coordinator-connected")
            self._pod.state.phase("forming")
        if self._pod.known.plan is not None:
            self._say_beat()  # a hello alone may not count

    def _secrets(self) -> tuple[str, ...]:
        return tuple(sorted(self._pod.secrets(self._pod.known.environ)))

    # What the coordinator says

    def _message(self, said: messages.Said | None) -> None:
        match said:
            case messages.TellPlan():
                self._plan(said)
            case messages.Prepare():
                self._prepare_part(said)
            case (
                messages.Go() | messages.Stop() | messages.AskEvidence() | messages.AskAlive() | messages.AskReadings()
            ):
                self.parts.told(said)
            case messages.TellRun(run):  # an exclusive run has begun or ended, with this pod or without
                self._begun = True
                self._pod.note_run(run)
                if run.until is not None and not run.first:
                    self._pod.sleep()
            case messages.Cluster():
                self._pod.state.cluster(said.lost, said.missing, said.found)
            case messages.Ask() | messages.Answer():
                self._questions.heard(said, self._read)
            case messages.TellResult():
                self._result(said)
            case messages.End() | messages.Retire():
                self._let_go(said)

    def _plan(self, told: messages.TellPlan) -> None:
        """Keep it and confirm it. The inventory comes after: the plan needs none of it, and it takes seconds."""
        try:
            plan = from_wire(told.plan)
        except ValueError as error:
            self.coordinator.not_understood("plan", error)
            return
        self.coordinator.awaits_plan = False
        again = self._pod.known.plan is not None
        keep_plan(self._pod, plan)
        if not again:
            self._pod.state.update(formed=self._machine.wall())
            self._pod.state.phase("formed")
        self._say(messages.Planned())
        if not again:
            self._preparing.gather_inventory(self._inventory_ready)
        elif not self._inventory_told and self._pod.known.inventory is not None:
            self._inventory_ready(self._pod.known.inventory)

    def _inventory_ready(self, found: Mapping[str, str]) -> None:
        # No run begins before this is told.
        self._inventory_told = True
        self._results_check.over.when(
            lambda: self._say(messages.Inventory(found, self._pod.state.phases, self._secrets()))
        )

    def _prepare_part(self, told: messages.Prepare) -> None:
        self._begun = True
        if self._life is Life.LIVING:
            self.parts.told(told)
        else:
            self._say(messages.Done(told.run, PartEnd(None, int(Exit.TRY_AGAIN), "this pod is ending")))

    def _result(self, result: messages.TellResult) -> None:
        """The job's one result, recorded before it is confirmed: after that the coordinator may go."""
        if result.stay and self._end is not None:  # a pod that is let in again hears it again, and may have a run
            self._say(messages.Bye())
            return
        self._end = result.end
        self._exit = self._exit or result.end
        if self._own_end is None:
            self._leaving.report_end(self._end, result.run, brief=True)
        self._leaving.record_end(self._end, result.run, self._code())
        self._say(messages.Bye())
        if result.stay and self._own_end is None:
            self._pod.sleep()
            self._pod.log.info(f"the run ended with exit code {self._end.code}; the cluster stays")
        else:
            self._leave()

    def _let_go(self, said: messages.End | messages.Retire) -> None:
        """The coordinator needs this pod no longer. After a bug of its own it may not have told the result."""
        if isinstance(said, messages.Retire):
            where = self._pod.where(self._settings.index)
            self._end_by_oneself(JobEnd(int(Exit.TRY_AGAIN), "this pod is to be replaced", where, said.why))
            return
        self._told = self._told or said.told
        if self._end is None:
            self.fail(PeerLost("the coordinator ended the cluster without reporting the job's result"))
        else:
            self._leave()

    # What commands ask

    def _asked(self, op: str, fields: dict[str, Any], answer: Answer) -> None:
        """A command in this pod asks. This pod knows what its own programs printed; for everything else it asks the
        coordinator, which alone knows whether a run that has not begun here is going to. Raises AgentError, or
        KeyError, TypeError and ValueError for what makes no sense.
        """
        own = op == "read" and int(fields["pod"]) == self._settings.index
        if own and (self.parts.has(str(fields["run"])) or self._pod.known.plan is None):
            self.parts.read(fields, answer)
        elif self._pod.known.plan is None:
            raise PeersMissing("the cluster is not formed yet", "a4-agent status shows what this pod waits for")
        elif self._life is not Life.LIVING:
            raise PeerLost("this pod is ending")  # nobody might hear the answer
        else:
            self._questions.ask(op, fields, answer)

    def _read(self, op: str, fields: dict[str, Any], answer: Answer) -> None:
        """The coordinator asks what this pod printed, and nothing else."""
        if op != "read":
            raise ValueError("no such request")
        self.parts.read(fields, answer)

    # Ends

    def fail(self, error: AgentError) -> None:
        """This pod cannot go on."""
        self._end_by_oneself(from_error(error, self._pod.where(self._settings.index)))

    def bug(self, traceback: str) -> None:
        self._end_by_oneself(from_bug(traceback, self._pod.where(self._settings.index)))

    def signalled(self, number: int) -> None:
        """SIGTERM or SIGINT for this pod; again: no more patience."""
        if self._leaving.told_to_end() and self._life < Life.LEAVING:
            self._told = from_signal(number, self._pod.where(self._settings.index))
            self._end_by_oneself(self._told)
        else:
            self.parts.hurry()
            self._last_words_over()

    def _end_by_oneself(self, end: JobEnd) -> None:
        """End this pod for that reason. Its parts of runs end first, so that the coordinator hears of them."""
        if self._life is not Life.LIVING:
            return
        self._life = Life.ENDING
        self._own_end = end = masked(end, self._pod.log.masked)  # the coordinator may not know our secrets yet
        self._exit = self._exit or end
        if self._end is not None:
            self._pod.log.error(f"this pod ends: {end}", end)
        else:
            self._leaving.report_end(end)
        self._say(messages.Stopping(end))
        self.parts.stop_all(self._give_up, told=is_told(end))

    def _give_up(self) -> None:
        """Nothing runs here any more: this pod's own end stands unless the job's is known by now."""
        assert self._own_end is not None
        if self._end is None:
            self._end = self._own_end
            self._leaving.record_end(self._own_end)
        self._leave()

    def _leave(self) -> None:
        """Nothing can keep this pod any more but processes of runs, which are ended. Later calls do nothing."""
        if self._life >= Life.LEAVING:
            return
        self._life = Life.LEAVING
        self.coordinator.awaits_plan = False
        why = f": {self._own_end.what}" if self._own_end is not None else ""
        self._questions.give_up(refusal(PeerLost(f"this pod is ending{why}")))
        self.parts.stop_all(self._say_last_words)

    def _say_last_words(self) -> None:
        """What was said must get out: the coordinator closes the channel when it has read all."""
        self._life = Life.SILENT
        seconds = self.coordinator.seconds_to_be_heard(self._code(), listens=self._preparing.sshd_listens)
        self._machine.later(seconds, self._last_words_over)

    def _last_words_over(self) -> None:
        if self._life is Life.SILENT:
            self._leaving.finish(self._code(), self._commands.when_left, self._woken)

    @property
    def _woken(self) -> JobEnd | None:
        """What has ended its sleep, if it slept and was not released."""
        return self._told or self._own_end

    def _code(self) -> int:
        """The job's code, except for a pod that was itself told to end, or failed, before there was one."""
        assert self._exit is not None
        return code_of_sleeper(self._exit, self._woken)

    def _beats(self) -> None:
        """Say that this pod lives and, with the plan, see whether the coordinator does: each side judges by its own
        clock alone."""
        if self._life is Life.SILENT:
            return
        self._say_beat()
        is_silent = self.coordinator.silent_seconds() > self._settings.lease
        if is_silent and not self.coordinator.awaits_plan and self._life is Life.LIVING:
            self._coordinator_silent()
        elif not is_silent:
            self._is_cut_off = False
        self._machine.later(self._beat, self._beats)

    def _coordinator_silent(self) -> None:
        """Where a lost pod may come back, this one waits for that, with nothing of a run going on."""
        settings, silence = self._settings, f"the coordinator has been {self.coordinator.silence()}"
        most = settings.lease + (settings.replacement if settings.lives else 0.0)
        if self.coordinator.silent_seconds() > most or not settings.lives:
            self.fail(PeerLost(f"{silence} ({self._pod.where(0)})"))
        elif not self._is_cut_off:
            self._is_cut_off = True
            self._pod.log.warning(f"{silence}: this pod ends its part of runs, and waits to be heard again")
            self.parts.hurry()

    def _say_beat(self) -> None:
        """A beat also tells how long ago a program printed: seconds, not a time, as clocks of pods differ."""
        printed = self.parts.printed()
        quiet = None if printed is None else round(self._machine.now() - printed, 3)
        self.coordinator.beat(quiet)

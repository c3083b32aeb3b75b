"""The coordinator (index 0): forms the cluster, leads the runs, tells every pod the job's one end.

Pod 0 coordinates because it is the one that every pod knows without being told: no election, and no state that would
have to survive it. When it is lost the job is lost, and Kubernetes starts all pods anew.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from agent.connection import ANSWER_SECONDS
from agent.decide import messages
from agent.decide.ending import JobEnd, code_of_sleeper, from_bug, from_error, from_signal, is_told, masked, merged
from agent.decide.lives import with_code_of_job
from agent.decide.runspec import RunSpec
from agent.decide.words import lines
from agent.errors import AgentError, ClusterBusy, Exit, IdentityRefused, PeerLost, PeersMissing
from agent.lifecycle.channel.announcing import Announcement
from agent.lifecycle.channel.command_socket import CommandSocket
from agent.lifecycle.channel.peer import Peer
from agent.lifecycle.channel.questions import Answer, handled
from agent.lifecycle.channel.roster import PodEvents, Roster
from agent.lifecycle.forming import Forming
from agent.lifecycle.pod.leaving import Leaving
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.pod.preparing import Preparing
from agent.lifecycle.pod.sshd import SshdGivenUp
from agent.lifecycle.runs.bookings import Bookings
from agent.lifecycle.runs.idling import Idling
from agent.lifecycle.runs.own_parts import Parts
from agent.lifecycle.runs.preparations import Preparations
from agent.lifecycle.runs.requests import CoordinatorRequests
from agent.lifecycle.runs.run_values import run_info
from agent.lifecycle.runs.running import Run
from agent.lifecycle.waits import Once, Settling
from agent.workloads import find_workload


class JobPhase(Enum):
    """How far the job is. A run may go on in FIRST_RUN and, submitted by commands, in SLEEPING."""

    FORMING = "forming"
    FIRST_RUN = "first run"
    ENDING = "telling every pod the end"
    SLEEPING = "sleeping"
    LEAVING = "leaving"


class Coordinator:
    """The only pod that decides for the job: in what order `Forming`, `Bookings` with their runs and `Announcement`
    have their turn, and what signals, lost pods and commands change in that."""

    def __init__(self, pod: Pod) -> None:
        self._pod = pod
        self._phase = JobPhase.FORMING
        self._preparing = Preparing(pod)
        self.parts = Parts(pod, self._say_of_own_part)
        events = PodEvents(
            message=self._message,
            lost=self._worker_lost,
            # A lambda, because Forming needs the roster and is made after it.
            greeted=lambda index, anew: self._forming.greeted(index, anew),
            told=self.parts.told,
            printed=self.parts.printed,
        )
        self.roster = Roster(pod, events)
        self._forming = Forming(pod, self.roster, self._preparing.gather_facts, self._formed, self._joined)
        self._stopping: set[int] = set()
        """Workers that end by themselves as soon as no run waits for them."""
        self._first_waits = False
        """The first run waits for the replacement of a pod that was lost before it."""
        self._leaving = Leaving(pod, self._preparing)
        self._preparations = Preparations(pod, self.fail)
        self._settling = Settling(pod.machine)
        self._bookings = Bookings(pod, self._preparations, self.roster, self._run_judged)
        self._requests = CoordinatorRequests(pod, self.roster, self.parts, self._bookings, self._submit, self._release)
        self._commands = CommandSocket(pod, self._requests.handle)
        self._idling = Idling(pod, lambda: self._bookings.idle, self._leave_orderly)
        self._announcement = Announcement(pod, self.roster, self._told)
        self._only_forms = find_workload(pod.job.spec.workload).starts_nothing
        self._first_run_told = Once()
        """Every pod knows how the first run ended: the cluster sleeps, or the job ends."""
        self._end: JobEnd | None = None
        """The job's end, fixed once."""
        self._fails = False
        """The job ends for a reason, which is announced in a moment."""
        self._signal: JobEnd | None = None
        """Why it was told to end from outside: by a signal, or a release before there was a result."""
        self._woken: JobEnd | None = None
        """What has ended it in its sleep, if it was not released."""

    def start(self) -> None:
        """Raises AgentError; `fail` then tells the other pods, so the way to them is opened first."""
        if self._signal is not None:
            return
        self.roster.start()
        self._preparing.prepare()
        self._commands.open()
        self._preparing.start_sshd(lambda: None)
        self._preparations.start()
        self._bookings.start()
        self._preparing.gather_inventory(self._preparations.own_inventory)
        self._forming.start()

    # What workers say

    def _message(self, peer: Peer, said: messages.Said) -> None:
        index = peer.index
        match said:
            case messages.TellFacts(facts, secrets):
                self._pod.log.add_secrets(secrets)
                self._forming.told(peer, facts)
            case messages.Planned():
                self._forming.planned(index)
            case messages.Inventory(inventory, phases, secrets):
                self._pod.log.add_secrets(secrets)
                self._preparations.inventory(index, inventory, phases)
            case messages.Ask() | messages.Answer():
                peer.questions.heard(said, self._requests.handle)
            case messages.Stopping(end):
                self._worker_stopping(index, end)
            case messages.Bye():
                self._announcement.confirmed(index)
            case _ if isinstance(said, messages.SaidOfPart):
                self._heard_of_part(index, said)

    def _say_of_own_part(self, said: messages.SaidOfPart) -> None:
        # By the loop: runs count on it that nobody answers from inside the call that told him something.
        self._pod.machine.later(0, lambda: self._heard_of_part(0, said))

    def _heard_of_part(self, index: int, said: messages.SaidOfPart) -> None:
        self._bookings.heard(index, said)
        if index in self._stopping and not self._bookings.waits_for(index):
            self._let_go(index)

    def _worker_stopping(self, index: int, end: JobEnd) -> None:
        """A worker ends by itself: it was told to, or it cannot go on.

        Its part of a run is waited for, as its processes may have state to save; only then it is let go.
        """
        where = end.where or self._pod.where(index)
        self._pod.log.warning(f"{where}: {end.what}")
        told = is_told(end)
        if told:
            self._settling.begin()
            # Not its 143: a worker that was told alone is only lost to the job, which may be tried again.
            end = JobEnd(Exit.TRY_AGAIN, f"a worker pod was {end.what}", where)
        self.roster.lost.note(index, end.what)
        self._stopping.add(index)
        if self._bookings.waits_for(index):
            self._bookings.cancel_those_with(index, end, told=told)
        else:
            self._let_go(index)
        survives = end.code == Exit.TRY_AGAIN and self._pod.settings.lives > 0
        if self._phase in (JobPhase.FORMING, JobPhase.FIRST_RUN) and not survives:
            self._job_fails(end)

    def _let_go(self, index: int) -> None:
        """This worker ends with a code of its own and needs nothing more from us."""
        self._stopping.discard(index)
        self.roster.expect(index, "it ended by itself")
        self._forget(index)
        self._bookings.left(index)
        self._announcement.confirmed(index)

    def _worker_lost(self, index: int, reason: str) -> None:
        """A run that needs the pod ends, and with it the job. Before a run there is nobody else to say it."""
        self._announcement.confirmed(index)
        if self._phase is not JobPhase.LEAVING:
            self.roster.lost.note(index, reason)
        # Before the runs hear of the loss, because then none waits for this pod any more.
        if self._bookings.waits_for(index):
            self.roster.keep_out(index)
        self._forget(index)
        self._bookings.lost(index, reason)
        before_a_run = self._phase in (JobPhase.FORMING, JobPhase.FIRST_RUN) and not self._bookings.current
        if before_a_run and not self._pod.settings.lives:
            self._job_fails(JobEnd(Exit.TRY_AGAIN, "a pod was lost before the run", self._pod.where(index), reason))

    def _forget(self, index: int) -> None:
        """Another pod may come in the place of this one, which is lost."""
        self._stopping.discard(index)
        self._preparations.forget(index)
        self._forming.lost(index)

    def _joined(self, index: int) -> None:
        """A worker that was lost has the plan, or another one in its place: it hears what it has missed."""
        self._pod.log.info(f"{self._pod.where(index)}, has joined the cluster")
        self.roster.lost.found(index)
        if self._announcement.said is not None:
            self.roster.say(self._announcement.said, [index])
        self._bookings.welcome(index)

    # What commands ask (see CoordinatorRequests)

    def _submit(self, spec: RunSpec, answer: Answer, *, waits: bool = True) -> None:
        """Begin a run that a command wants, and answer with its name. Raises AgentError, which is then the answer.

        `waits`: it may come a moment before the cluster sleeps: after `local up --wait` every pod only has the plan.
        """
        workload = find_workload(spec.workload)
        if self._pod.known.plan is None:
            raise PeersMissing("the cluster is not formed yet", "a4-agent status shows whom it waits for")
        early = waits and self._is_early(workload.exclusive)
        if self._phase is JobPhase.LEAVING or (self._phase is JobPhase.ENDING and not early):
            raise ClusterBusy("the job is ending")
        context = self._bookings.checked(spec)  # what is wrong with the wish is told before who else is at work
        if early:
            self._ask_soon("submit", lambda: self._submit(spec, answer, waits=False), answer)
            return
        if workload.exclusive and (self._bookings.current or self._phase is not JobPhase.SLEEPING):
            raise self._bookings.busy()
        run = self._bookings.book(context, first=False)
        answer({"ok": run_info(self._pod, run).to_json()})
        if workload.exclusive:
            self._idling.stop()
        self._bookings.begin(run)

    def _release(self, force: bool, answer: Answer, *, waits: bool = True) -> None:
        """End a sleeping cluster and answer with its recorded code, also when it ends already. Raises ClusterBusy.

        `waits`: as for `submit`.
        """
        why = JobEnd(Exit.INTERRUPTED, "the cluster was released")
        if self._phase is not JobPhase.LEAVING and self._signal is None:
            if waits and self._is_early(self._pod.known.plan is not None):
                self._ask_soon("release", lambda: self._release(force, answer, waits=False), answer)
                return
            may_be = self._phase is JobPhase.SLEEPING or (force and self._phase is JobPhase.FIRST_RUN)
            if self._bookings.current and not (force and may_be):
                raise self._bookings.busy()
            if not may_be:
                raise ClusterBusy("the cluster is not sleeping", "a4-agent status shows what it does")
            self._pod.log.info("the cluster is released")
            self._leave_orderly(why)
        answer({"ok": {"code": (self._end or self._signal or why).code}})

    def _is_early(self, needs_sleep: bool) -> bool:
        """May the cluster sleep in a moment? The end of its first run is being told, or it has none but to form, which
        matters to what `needs_sleep`."""
        soon = self._phase is JobPhase.ENDING or (needs_sleep and self._only_forms)
        return soon and not self._first_run_told.happened

    def _ask_soon(self, op: str, ask: Callable[[], None], answer: Answer) -> None:
        """Do it when the cluster sleeps or leaves, or in half of the time that its command waits for an answer."""
        waited = Once()
        waited.when(lambda: handled(lambda *_: ask(), op, {}, answer))
        self._first_run_told.when(waited.happen)
        self._pod.machine.later(ANSWER_SECONDS / 2, waited.happen)

    def _leave_orderly(self, why: JobEnd) -> None:
        """End the runs that go on, then the job, with its recorded code if there is one."""
        if self._end is None:
            self._signal = why
            self._job_fails(why)
            return
        self._phase = JobPhase.LEAVING
        self._idling.stop()
        self._bookings.cancel_all(why)
        # Later: who asked for it is answered first.
        self._bookings.when_idle(lambda: self._pod.machine.later(0.0, self._say_end))

    # Runs

    def _formed(self) -> None:
        """Every pod has the plan, for the first time or as it is now."""
        if self._phase is not JobPhase.FORMING:
            self._bookings.pods_joined()
            if self._first_waits:
                self._begin_first_run()
            return
        self._pod.state.update(formed=self._pod.machine.wall())
        self._phase = JobPhase.FIRST_RUN
        self._preparations.results_check.over.when(self._begin_first_run)

    def _begin_first_run(self) -> None:
        """Where its results go is known now; that they can go nowhere ends the job."""
        if self._end is not None or self._signal is not None or self._fails:
            return
        lost = self.roster.lost.reasons() if self._pod.settings.lives else {}
        if lost and not self._first_waits:
            self._first_waits = True
            self._pod.machine.later(self._pod.settings.replacement, self._give_up_first_run)
        if lost:
            return
        self._first_waits = False
        try:
            self._bookings.begin(self._bookings.book(self._bookings.checked(self._pod.job.spec), first=True))
        except AgentError as error:  # as a pod that was lost just now
            self.fail(error)

    def _give_up_first_run(self) -> None:
        lost = self.roster.lost.reasons()
        if self._first_waits and lost:
            index, seconds = min(lost), self._pod.settings.replacement
            why = lines(lost[index], f"no replacement came within {seconds:g} s")
            self._job_fails(JobEnd(Exit.TRY_AGAIN, "a pod was lost before the run", self._pod.where(index), why))

    def _run_judged(self, run: Run) -> None:
        self._settling.when_over(lambda: self._close_run(run))

    def _close_run(self, run: Run) -> None:
        """Store it, tell who waits, then let the next one come: results of two runs must not meet in one directory."""
        if run.verdict.again and self._signal is None:
            for index, why in run.verdict.lives.unhealthy.items():
                self.roster.lost.note(index, why)
                self.roster.say(messages.Retire(why), [index])
            self._bookings.next_life(run)
            return
        if run.verdict.again and self._signal is not None:
            run.cancel(self._signal)
        if run.first and self._signal is not None and not run.verdict.said:
            run.verdict.end_as(merged(run.verdict.end, self._signal))
        self._bookings.close(run, self._leaving.store_seconds())
        self._leaving.when_kept(run.kept)
        if run.first:
            self._announce(run.verdict.end, run.run_id, run.verdict.lives.vain)
        else:
            end = run.verdict.end
            self._pod.log.info(f"{run.run_id} ended with exit code {end.code}: {end}", end, run.run_id)
            self._pod.run_logs.end()
            if self._phase is JobPhase.SLEEPING:
                self._pod.state.sleep()
                self._idling.start()
        self._bookings.closed(run)

    # Ends

    def fail(self, error: AgentError) -> None:
        """The job cannot go on."""
        others = isinstance(error, (PeersMissing, IdentityRefused, PeerLost))
        end = from_error(error, "" if others else self._pod.where(0))
        if self._phase is JobPhase.SLEEPING and isinstance(error, SshdGivenUp):
            self._pod.log.error(f"the cluster ends in its sleep: {end}", end)
            self._wake(end)
        else:
            self._job_fails(end)

    def bug(self, traceback: str) -> None:
        """Something here is broken (70). The other pods must hear of an end all the same, or they wait for a lease."""
        end = from_bug(traceback, self._pod.where(0))
        if self._end is not None:
            # Half of the cluster may not have heard of something by now: better it ends than that it seems to sleep.
            self._pod.log.error(f"after the job's end: {end}", end)
            if self._phase is not JobPhase.LEAVING:
                self._woken = end if self._announcement.stay else None
                self._say_end()
            return
        self._bookings.abandon(end)  # what may itself be broken gets one chance to end the run in order
        self._announce(end)

    def signalled(self, number: int) -> None:
        """SIGTERM or SIGINT: end the job; when its result is known, only end sooner."""
        self._leaving.told_to_end()
        again = self._signal is not None
        self._signal = self._signal or from_signal(number, self._pod.where(0))
        if again and self._bookings.current is not None:
            self._bookings.current.hurry()
        elif self._end is None and not again:
            self._settling.end()
            self._job_fails(self._signal)
        elif self._phase in (JobPhase.SLEEPING, JobPhase.ENDING):
            self._wake(self._signal)

    def _wake(self, end: JobEnd) -> None:
        """End a cluster that sleeps, or is about to, for another reason than a release."""
        self._woken = end if self._announcement.stay else None
        self._leave_orderly(end)

    def _job_fails(self, end: JobEnd) -> None:
        """End the job for this reason. A run that goes on is ended first, and its end then is the job's."""
        if self._end is not None:
            self._pod.log.error(f"after the job's end: {end}", end)
            return
        self._bookings.cancel_all(end)
        if self._bookings.current:
            return
        self._forming.give_up()
        self._fails = True
        self._settling.when_over(lambda: self._announce(merged(end, self._signal) if self._signal else end))

    def _announce(self, end: JobEnd, run_id: str = "", vain: str = "") -> None:
        """Fix the job's end, record it, tell every worker, and go when they have it, or sleep. `vain`: why its run
        would gain nothing by another life."""
        if self._end is not None:
            return
        self._forming.give_up()
        if self._pod.settings.lives and self._signal is None:
            end = with_code_of_job(end, vain)
        self._end = end = masked(end, self._pod.log.masked)
        self._phase = JobPhase.ENDING
        self._leaving.record_end(end, run_id)
        if end.code == Exit.OK:  # a success is said when its results are there
            self._leaving.when_kept(lambda missing: self._leaving.report_end(end, run_id, missing=missing))
        else:
            self._leaving.report_end(end, run_id)
        stay = bool(run_id) and self._signal is None and self._pod.settings.sleeps_after(end.code)
        self._announcement.start(end, run_id, stay=stay, signalled=self._signal is not None)

    def _told(self) -> None:
        """Every worker has the result, or had its time to confirm it. A cluster that stays sleeps from here on."""
        if self._announcement.stay and self._phase is not JobPhase.LEAVING:
            self._phase = JobPhase.SLEEPING
            stays = "the cluster stays; a4-agent run submits to it, a4-agent release ends it with that code"
            self._leaving.when_kept(lambda missing: self._pod.log.info(stays))
            self._pod.sleep()
            self._idling.start()
        elif self._phase is not JobPhase.LEAVING:
            self._leave()
        self._pod.machine.later(0.0, self._first_run_told.happen)  # once the first run is closed

    def _say_end(self) -> None:
        """End a cluster that sleeps. A worker whose channel broke just now would say that this pod is lost, and 75."""
        self._phase = JobPhase.LEAVING
        self.roster.say(messages.End(self._woken))
        self.roster.when_all_hear(self._pod.shares.announce, self._leave)

    def _leave(self) -> None:
        self._phase = JobPhase.LEAVING
        self._first_run_told.happen()
        self._idling.stop()
        self.parts.stop_all(self._finish, most=self._leaving.seconds_left())

    def _finish(self) -> None:
        assert self._end is not None
        self.roster.close()
        self._leaving.finish(code_of_sleeper(self._end, self._woken), self._commands.when_left, self._woken)

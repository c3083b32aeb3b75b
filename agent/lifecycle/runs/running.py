"""One run of one workload on a formed cluster, as the coordinator leads it.

Told, prepared, go: every pod answers that its part can begin before any of them starts a process. Otherwise it would
depend on which pod is faster whether ranks find the files, and the ports, that they look for on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from agent.clinic.interface import health_sentence
from agent.decide.ending import JobEnd, is_told, with_losses
from agent.decide.facts import Finding
from agent.decide.lives import unhealthy_pods
from agent.decide.messages import Go, Prepare, Stop
from agent.decide.mpirun import mpi_of
from agent.decide.part_end import PartEnd, not_ready, refusal
from agent.decide.run_names import run_of, titled
from agent.decide.subset import pods_text
from agent.decide.words import lines
from agent.errors import Exit
from agent.lifecycle.channel.roster import Roster
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.runs.afterwards import Afterwards
from agent.lifecycle.runs.awaited_pods import AwaitedPods
from agent.lifecycle.runs.course import Course, Phase
from agent.lifecycle.runs.facts import Facts
from agent.lifecycle.runs.gate import HealthGate
from agent.lifecycle.runs.judging import warned
from agent.lifecycle.runs.meetings import Meetings
from agent.lifecycle.runs.preparations import Preparations
from agent.lifecycle.runs.roll_call import RollCall
from agent.lifecycle.runs.verdict import Verdict
from agent.lifecycle.runs.why import Why
from agent.lifecycle.waits import Once
from agent.workloads import find_workload
from agent.workloads.base import FailedPart, Judgement, RunContext

FAILING_SECONDS = 10.0
"""Older releases of torchrun look at their ranks every 5 s, and a torchrun may stand still for a while."""


@dataclass(eq=False)
class Run:
    """Lets every pod prepare its part, starts all together, ends all when one fails, judges when all are over.

    What follows what is decided by `agent.lifecycle.runs.course`; here it is done. `context` is the lead's, as far as
    the coordinator knows it; `present` makes it anew from the plan as it is now. `early` is told when there is a
    judgement while something is still read that does not change it; `over` is told once, when nothing is waited for any
    more: then `verdict.again` says whether the run starts again. Each life of a run is one of these, `before` the last
    one.
    """

    _pod: Pod
    context: RunContext
    preparations: Preparations
    _roster: Roster
    _early: Callable[[Run], None]
    _over: Callable[[Run], None]
    _present: Callable[[RunContext], RunContext]
    first: bool
    _before: Run | None = None

    def __post_init__(self) -> None:
        pod, context, before = self._pod, self.context, self._before
        self._machine = pod.machine
        self._shares = pod.shares
        self.workload = workload = find_workload(context.spec.workload)
        self.beside = self.first and pod.run_logs.has_earlier
        self.began = pod.machine.wall()
        """When this life was booked or, once it was, told to go, in seconds since 1970."""
        self.since: float = before.since if before else self.began
        """When the run was."""
        self.verdict: Verdict = Verdict(pod, context, workload, before.verdict if before else None)
        self.until: float | None = None
        """When it was certain how it ended; None before."""
        self.course = Course(
            frozenset(context.indices),
            context.lead,
            led=workload.led,
            fail_fast=workload.fail_fast,
            may_start_again=context.lives_left > 0,
        )
        self.gated: tuple[Finding, ...] | None = None if context.spec.gate and not before else ()
        """What was found out about its pods before it; None: nothing yet."""
        self.missing = ""
        """Which results are not stored and why, as far as that is known."""
        self.told_to_begin: Once = before.told_to_begin if before else Once()
        """Every pod has been, or the run is over without."""
        self.certain: Once = before.certain if before else Once()
        """There is a judgement, and no further life."""
        self.answerable: Once = before.answerable if before else Once()
        """Everything that those who wait for it may look at next is written, or is known not to be."""
        self.awaited = AwaitedPods(
            pod, self._roster, self.course.pods, lives=bool(context.spec.lives), give_up=self._give_up_pods
        )
        self.meetings = Meetings(pod.machine, lambda: self.course.open)
        self.facts = Facts(pod.machine, self._gone)
        self._look_at_pods()
        self._before = None  # else the first life would be kept until the last is over

    def _look_at_pods(self) -> None:
        """Who asks pods something in the course of the run, by the plan as it is known."""
        pod, context, roster = self._pod, self.context, self._roster
        self.gate = HealthGate(pod, context, roster, self._gated)
        self._roll_call = RollCall(pod, context, roster, lambda: self.course.silent, self.worker_lost)
        """Begins when a process fails: that may be because a pod is lost."""
        self.why = Why(pod, self.workload, context, roster, lambda: self.course.open, self.cancel)
        self.afterwards = Afterwards(pod, self.why, self._judge_if_over)

    @property
    def run_id(self) -> str:
        """The same in all its lives; messages about a part have `context.run_id`."""
        return run_of(self.context.run_id)

    @property
    def title(self) -> str:
        """How messages speak of it."""
        return titled(self.run_id, self.context.spec.name)

    @property
    def over(self) -> bool:
        """It is, and no further life follows."""
        return self.course.phase is Phase.OVER and not self.verdict.again

    def start(self) -> None:
        """Refuses pods that may not run this together, else lets all prepare; nothing if it was ended before."""
        if self.course.phase is not Phase.BOOKED or (self.context.spec.lives and self.await_pods()):
            return
        if self.gated is None:
            self.gate.begin()
            return
        if refused := self.preparations.refusal(self.context, self.workload):
            self.cancel(refused)
            return
        mpi = mpi_of(self.preparations.inventories.get(self.context.lead))
        self.context = replace(self.context, mpi=mpi, baselines=self._pod.known.baselines)
        if self.workload.starts_nothing:
            self._follow(self.course.to(Phase.PREPARING))
            self._judge_if_over()
            return
        lost = self.awaited.lost()
        if lost and self.course.needs_all:
            index, why = min(lost.items())
            self.course = self.course._replace(lost=lost)
            self.cancel(JobEnd(Exit.TRY_AGAIN, "a pod was lost before the run began", self._pod.where(index), why))
            return
        self._follow(self.course.prepare(lost))
        self._go_if_prepared()

    @property
    def awaited_pods(self) -> tuple[int, ...]:
        """The lost pods whose replacements it waits for."""
        return tuple(sorted(self.awaited.lost())) if self.awaited.are_waited_for else ()

    def waits_for_lost(self) -> bool:
        """May a pod that is lost come back into it?"""
        return self.awaited.may_come and not self.over

    def await_pods(self) -> bool:
        """Does it have to wait for the replacement of a lost pod? Else it goes by the plan as it is now."""
        if self.awaited.wait(self.run_id):
            return True
        self.verdict.lives.joined()
        present = self._present(self.context)
        if present.plan != self.context.plan:
            self.context = present
            self.course = self.course._replace(lead=present.lead)
            self._look_at_pods()
        return False

    def _give_up_pods(self) -> None:
        """No replacement has come: the run ends as its last life did."""
        lost = self.awaited.lost()
        if self.course.phase is not Phase.BOOKED or not lost:
            return
        self.verdict.lives.is_last = True
        what = f"no replacement of {pods_text(lost)} came within {self._pod.settings.replacement:g} s"
        index = min(lost)
        end = JobEnd(Exit.TRY_AGAIN, "a pod was lost before the run began", self._pod.where(index), lost[index])
        end = self.verdict.lives.earlier[-1].end if self.verdict.lives.earlier else end
        self.cancel(end._replace(why=lines(what, end.why)))

    def _gated(self, refused: JobEnd | None, found: tuple[Finding, ...]) -> None:
        self.gated = found
        if refused is not None and self.course.phase is Phase.BOOKED:
            self.cancel(refused)
        else:
            self.start()

    def _go_if_prepared(self) -> None:
        """Start every part once no pod has to be waited for."""
        if not self.course.may_go:
            return
        if refused := refusal(self.verdict.ends, self._pod.where):
            self.cancel(refused)
            return
        self._follow(self.course.to(Phase.RUNNING))

    # What each phase means

    def _follow(self, course: Course) -> None:
        """Take the next value of the course, and do what is new in it."""
        before, self.course = self.course, course
        if course.first is not None and before.first is None:
            self._roll_call.begin(course.first)
        if course.phase is not before.phase:
            self._enter(course.phase, before.phase)

    def _enter(self, phase: Phase, before: Phase) -> None:
        if phase >= Phase.FAILING:
            self.verdict.lives.notice()
            self.why.stop()
        match phase:
            case Phase.PREPARING:
                self._tell_open(Prepare(self.context.run_id, self.context.spec, tuple(self.context.indices)))
                self._machine.later(self._pod.settings.lease, self._end_unprepared)
            case Phase.RUNNING:
                self._tell_open(Go(self.context.run_id))
                self.began = self._machine.wall()
                self.verdict.lives.begun(self.began)
                self.told_to_begin.happen()
                self._judge_if_over()
                if self.course.phase is Phase.RUNNING:
                    self.why.start()
            case Phase.OVER:
                self.awaited.stop()
                self._judge()
            case _:
                self._enter_ending(phase, before)

    def _enter_ending(self, phase: Phase, before: Phase) -> None:
        later, shares = self._machine.later, self._shares
        match phase:
            case Phase.FAILING:
                assert self.course.first is not None
                missed = f"{self.run_id} failed on {self._pod.where(self.course.first)}, where a rank missed another"
                self._pod.log.info(f"{missed}; other pods have {FAILING_SECONDS:.0f} s to fail by themselves")
                later(FAILING_SECONDS, self._end_failing)
            case Phase.SAVING:
                self._tell_open(Stop(self.context.run_id, told=True))
                later(shares.part, self._stop_waiting)
                # Silent pods, too, because the grace time does not wait for a lease.
                later(shares.part, self._roll_call.end)
                if self.workload.led:  # mpirun is told when ranks are over everywhere: it would end them all
                    later(shares.save, lambda: self._follow(self.course.to(Phase.LEAD_ENDS)))
            case Phase.LEAD_ENDS:
                self._roster.say(Stop(self.context.run_id), [self.context.lead])
                if before is not Phase.SAVING:
                    later(shares.own_part, self._stop_waiting)
            case Phase.ALL_END:  # mpirun's or the first failure's own pod, too: one that is over ignores it
                # What may start again is ended at once: nobody waits until ranks of NCCL have noticed.
                at_once = self.course.may_start_again and not self.course.told
                self._tell_open(Stop(self.context.run_id, hurry=at_once))
                later(shares.own_part, self._stop_waiting)

    def _tell_open(self, said: Prepare | Go | Stop) -> None:
        self._roster.say(said, sorted(self.course.open))

    def _end_unprepared(self) -> None:
        """Pods are heard, yet their parts cannot begin: a file system that hangs, an agent that does. Or they are heard
        no more: their lease began a little later than this wait."""
        if self.course.phase is not Phase.PREPARING:
            return
        absent = self._roster.absent()
        gone = {index: absent[index] for index in self.course.unprepared if index in absent}
        if gone:
            index = min(gone)
            end = JobEnd(Exit.TRY_AGAIN, "a pod was lost before the run began", self._pod.where(index), gone[index])
            self.cancel(with_losses(end, gone, self._pod.where))
        else:
            self.cancel(not_ready(sorted(self.course.unprepared), self._pod.settings.lease, self._pod.where))

    def _end_failing(self) -> None:
        if self.course.phase is Phase.FAILING:
            self._follow(self.course.to(Phase.ALL_END))

    def _stop_waiting(self) -> None:
        self.course = self.course.given_up()
        self._judge_if_over()

    # What pods say

    def part_prepared(self, index: int) -> None:
        """This pod's part can begin."""
        self.course = self.course.prepared(index)
        self._go_if_prepared()

    def part_done(self, index: int, end: PartEnd) -> None:
        """This pod's part is over."""
        if index not in self.course.open:
            return
        self.verdict.part_over(index, end)
        if end.stopped and self.course.phase <= Phase.RUNNING:
            # Nobody here has told it to end: a status of 0 says only that its program ends well when it is told to.
            self.worker_lost(index, "its agent has ended its part of the run")
            return
        self.course = self.course.part_over(index)
        self.ranks_over(index)
        if self.course.phase is Phase.PREPARING:
            self._go_if_prepared()
            self._judge_if_over()
            return
        if end.what and self.course.needs_all:
            what, _, hint = end.what.partition("\n")
            self._end_because(JobEnd(end.code, what, self._pod.where(index), hint.strip()))
        elif end.code and self.workload.fail_fast and not self.workload.led:
            victim = self.workload.is_victim(end.status or 0, FailedPart(end.output, end.error))
            self._follow(self.course.failed(index, victim=victim))
        if self.workload.led and index == self.context.lead:
            self._follow(self.course.to(Phase.ALL_END))
        if not self.course.open:
            self.why.stop()  # whatever is waited for now, the run itself is over
        self.why.heard(index, None)
        self.meetings.look()
        self.facts.look()
        self._judge_if_over()

    def _gone(self, indices: Collection[int]) -> Mapping[int, str]:
        """Which of these pods are done with their part, and why."""
        over = set(indices) - self.course.open
        return {index: self.course.lost.get(index, "its part of the run is over") for index in over}

    def ranks_over(self, index: int) -> None:
        """This pod's ranks are over."""
        had_ranks = self.course.with_ranks
        self._follow(self.course.ranks_over(index))
        if self.course.phase is Phase.RUNNING and had_ranks and not self.course.with_ranks:
            self._roster.say(Stop(self.context.run_id, ranks_over=True), [self.context.lead])

    def alive(self, index: int) -> None:
        """This pod has answered the roll call."""
        if index not in self.course.silent:
            return
        self._roll_call.answered(index)
        self.course = self.course.answered(index)
        if index in self.course.open and self.course.phase is Phase.ALL_END:
            self._machine.later(self._shares.own_part, self._stop_waiting)  # it may have heard only now that it ends
        self._judge_if_over()

    def worker_lost(self, index: int, reason: str) -> None:
        """A pod is gone. Where pods do not need each other (`exec`) the run goes on without it, and tells of it."""
        if index not in self.course.pods or self.course.phase is Phase.OVER:
            return
        if self.course.phase is Phase.BOOKED and self.waits_for_lost():
            return  # it begins when the replacement is there
        if self._parts_over:
            self.pod_left(index)
            return
        self.course = self.course.gone(index, reason)
        self.facts.look()
        self.ranks_over(index)
        if self.course.needs_all:
            # Also when its part is done: nobody can tell whether the others still need the pod.
            self._end_because(JobEnd(Exit.TRY_AGAIN, "a pod was lost during the run", self._pod.where(index), reason))
            # If mpirun was told to end before, only its end would have the other pods told.
            if index == self.context.lead:
                self._follow(self.course.to(Phase.ALL_END))
        # After that, because only the loss of a silent pod explains the failure of others (see Course.cancelled).
        self.course = self.course.answered(index)
        self.why.heard(index, None)
        self._judge_if_over()

    def pod_left(self, index: int) -> None:
        """A pod whose part is over has ended: nothing more is read there."""
        self.afterwards.gone(index)
        self.why.heard(index, None)
        if self._parts_over:
            self._judge_if_over()

    # Ending it

    def cancel(self, end: JobEnd, *, told: bool = False) -> None:
        """End the run for this reason, unless one stands already. `told`: from outside, with the grace time. When all
        its parts are over, that only ends the wait for what is read afterwards, or for the next life."""
        if self.verdict.again:
            self.verdict.goes_no_further(end)
        elif self._parts_over:
            self.verdict.lives.is_last = True
            self.afterwards.stop(told=True)
            self._judge_if_over()
        else:
            self._end_because(end, told=told)

    def _end_because(self, end: JobEnd, *, told: bool = False) -> None:
        """The same, but when all parts are over, too: the one that ended last may be the reason."""
        self.afterwards.stop(told=told or is_told(end))
        ends_already = self.course.phase >= Phase.SAVING
        self._follow(self.course.cancelled(end, told=told))
        self._judge_if_over()
        # The grace time runs, so a silent pod is not waited for until its lease is over.
        if ends_already and (told or is_told(end)):
            self._machine.later(self._shares.answer, self._roll_call.end)

    def hurry(self) -> None:
        """No more patience."""
        self._tell_open(Stop(self.context.run_id, hurry=True))

    @property
    def _parts_over(self) -> bool:
        """How the run ends is certain, though perhaps not said yet."""
        return self.course.phase >= Phase.RUNNING and not self.course.waits

    def _judge_if_over(self) -> None:
        if self.course.waits:
            return
        if self._starts_again({}):
            self._follow(self.course.to(Phase.OVER))
            return
        verdict, afterwards = self.verdict, self.afterwards
        if afterwards.waits_for_dumps(self.course, verdict.ends):
            return
        waits = afterwards.waits_for_devices(self.course, verdict.ends)
        if not waits:
            self._starts_again(unhealthy_pods(afterwards.findings))
            self._follow(self.course.to(Phase.OVER))
        elif verdict.judgement is None:
            judgement = self._judged()
            if verdict.may_start_again(self.course) and verdict.lives.may_go_on(judgement.end):
                return  # a pod may be found unhealthy
            verdict.judgement, verdict.waits, verdict.said = judgement, waits, True
            self._early(self)
            self.certain.happen()

    def _starts_again(self, unhealthy: Mapping[int, str]) -> bool:
        """Is this the end of a life that another one follows? Without `unhealthy` pods nothing is read for it that
        takes time."""
        if not self.verdict.may_start_again(self.course):
            return False
        stalled = self.why.found is not None and self.why.found.trigger == "stall"
        lost = {*self.course.lost, *self.awaited.lost()}
        judgement = self._judged()
        return self.verdict.starts_again(
            judgement, self.context, self.course, self.began, lost, unhealthy, stalled=stalled
        )

    def _judged(self) -> Judgement:
        return self.verdict.judged(self.context, self.course, self.afterwards, self._roll_call.notes())

    def _judge(self) -> None:
        """With what was read since it was certain, which has lines of its own."""
        if self.verdict.again:
            self._over(self)
            return
        health = health_sentence(self.afterwards.findings)
        judgement = self.verdict.judgement or self._judged()
        self.verdict.judgement = warned(judgement, [health]) if health else judgement
        self.verdict.waits = ""
        self.certain.happen()
        self._over(self)
        self.told_to_begin.happen()  # who reads a run waits for this, even if it has ended before it began

    # What it leaves

    def kept(self, missing: str) -> None:
        """Its results are stored, but for those that are `missing`: who waits for it is answered."""
        self.missing = missing
        self.answerable.happen()

    @property
    def results(self) -> str:
        """Directory on the coordinator; a run beside others keeps none."""
        top = self.first and not self.beside
        return self._pod.run_logs.directory(self.run_id, top=top) if self.workload.exclusive else ""

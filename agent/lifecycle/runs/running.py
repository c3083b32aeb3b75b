"""One run of one workload on a formed cluster, as the coordinator leads it.

Told, prepared, go: every pod answers that its part can begin before any of them starts a process. Otherwise it would
depend on which pod is faster whether ranks find the files, and the ports, that they look for on the others.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import replace
from enum import IntEnum

from agent.decide.ending import JobEnd, from_bug, is_told, merged
from agent.decide.messages import Go, Prepare, Stop
from agent.decide.part_end import PartEnd, not_ready, refusal
from agent.decide.ranks import RankEnd
from agent.errors import Exit
from agent.lifecycle.once import Once
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.runs.all_pods import AllPods
from agent.lifecycle.runs.limits import Limits
from agent.lifecycle.runs.meetings import Meetings
from agent.lifecycle.runs.preparations import Preparations
from agent.lifecycle.runs.roll_call import RollCall
from agent.lifecycle.runs.why import Why
from agent.workloads.base import FailedPart, Judgement, Outcome, RunContext, Workload
from agent.workloads.ends import judged

FAILING_SECONDS = 10.0
"""Older releases of torchrun look at their ranks every 5 s, and a torchrun may stand still for a while."""


class Phase(IntEnum):
    """How far a run is. It never goes back, and may leave out what lies between."""

    BOOKED = 0
    """Something that must be known of its pods is not, yet."""
    PREPARING = 1
    """Every pod was told to get its part ready."""
    RUNNING = 2
    """Every pod was told to go."""
    FAILING = 3
    """A process failed because another did, by its own words: the others have FAILING_SECONDS to fail by themselves."""
    SAVING = 4
    """It was told to end from outside: every pod tells its own processes, which have the grace time."""
    LEAD_ENDS = 5
    """mpirun was told to end. The other pods, on which it has daemons, are told when it has ended."""
    ALL_END = 6
    """Every pod was told to end its part."""
    OVER = 7
    """Judged."""


class Run:
    """Lets every pod prepare its part, starts all together, ends all when one fails, judges when all are over.

    `context` is the lead's, as far as the coordinator knows it; `over` gets the judgement once.
    """

    def __init__(
        self,
        pod: Pod,
        workload: Workload,
        context: RunContext,
        *,
        preparations: Preparations,
        pods: AllPods,
        over: Callable[[Judgement], None],
    ) -> None:
        self._pod = pod
        self._machine = pod.machine
        self.workload = workload
        self.context = context
        self.preparations = preparations
        self._pods = pods
        self._tell = pods.tell
        self._tell_judgement = over
        self.indices = context.indices
        self._open: set[int] = set()
        """Pods whose part is not over."""
        self.meetings = Meetings(pod.machine, lambda: self._open)
        self._unprepared: set[int] = set()
        """Pods that must say first that their part can begin."""
        self.ends: dict[int, PartEnd] = {}
        """How parts ended, by pod."""
        self.lost: dict[int, str] = {}
        """Why pods of this run are lost, by index."""
        self._cause: JobEnd | None = None
        """Why it is ended before its time; the first weighty reason stays (see `merged`)."""
        self._first: int | None = None
        """The pod whose process failed first. What comes after is its consequence."""
        self._roll_call = RollCall(pod, context, pods, self.worker_lost)
        """Begins then: it may have failed because a pod is lost."""
        self._only_victims = False
        """All that failed until the others were ended did so because another had, by their own words."""
        self._phase = Phase.BOOKED
        self._told = False
        """It was told to end from outside."""
        self._saving: set[int] = set()
        """Pods of an MPI run in SAVING whose ranks are not over."""
        self._ranks_run = set(self.indices) if workload.led else set()
        """Pods of an MPI run that nobody has told to end whose ranks are not over."""
        self._shares = pod.shares
        self.told_to_begin = Once()
        """Every pod has been, or the run is over without."""
        self.why = Why(pod, workload, context, self._open, pods)
        self._limits = Limits(pod, context, self._open, pods, self.why, self.cancel)

    @property
    def run_id(self) -> str:
        return self.context.run_id

    @property
    def over(self) -> bool:
        return self._phase is Phase.OVER

    def forget_output(self) -> None:
        """What was printed is in the spools. Kept here it would be a few MiB for each of 50 runs."""
        self.ends = {index: end._replace(output="", record="") for index, end in self.ends.items()}

    def lead_output(self) -> str:
        """The end of what the lead printed."""
        return self.ends.get(self.context.lead, PartEnd(None)).output

    def start(self) -> None:
        """Refuses pods that may not run this together, else lets all prepare; nothing if it was ended before."""
        if self._phase is not Phase.BOOKED:
            return
        refused = self.preparations.refusal(self.context, self.workload)
        if refused is not None:
            self.cancel(refused)
            return
        mpi = self.preparations.mpi(self.context.lead)
        self.context = replace(self.context, mpi=mpi, baselines=self._pod.known.baselines)
        self._phase = Phase.PREPARING
        if self.workload.starts_nothing:
            self._judge_if_over()
            return
        self.lost = {index: why for index, why in self._pods.lost.reasons().items() if index in self.indices}
        if self.lost and (self.workload.fail_fast or self.workload.led):
            index, why = min(self.lost.items())
            self.cancel(JobEnd(Exit.TRY_AGAIN, "a pod was lost before the run began", self._pod.where(index), why))
            return
        self._open |= set(self.indices) - set(self.lost)
        self._tell(sorted(self._open), Prepare(self.run_id, self.context.spec, tuple(self.indices)))
        if self.workload.fail_fast:
            self._unprepared = set(self._open)
            lease = self._pod.settings.lease

            def not_prepared() -> None:
                # Pods are heard, yet their parts cannot begin: a file system that hangs, an agent that does.
                if self._phase is Phase.PREPARING:
                    self.cancel(not_ready(sorted(self._unprepared), lease, self._pod.where))

            self._machine.later(lease, not_prepared)
        self._go_if_prepared()

    def _go_if_prepared(self) -> None:
        """Start every part once no pod has to be waited for."""
        if self._phase is not Phase.PREPARING or self._unprepared:
            return
        refused = refusal(self.ends, self._pod.where)
        if refused is not None:
            self.cancel(refused)
            return
        self._phase = Phase.RUNNING
        self._tell(sorted(self._open), Go(self.run_id))
        self.told_to_begin.happen()
        self._judge_if_over()
        if self._phase is Phase.RUNNING:
            self._limits.start()
            self.why.start()

    # What pods say

    def part_prepared(self, index: int) -> None:
        """This pod's part can begin."""
        self._unprepared.discard(index)
        self._go_if_prepared()

    def part_done(self, index: int, end: PartEnd) -> None:
        """This pod's part is over."""
        if index not in self._open:
            return
        self._open.discard(index)
        self.ranks_over(index)
        self.ends[index] = end
        if self._phase is Phase.PREPARING:
            self.part_prepared(index)
            self._judge_if_over()
            return
        failed = end.code != 0 or bool(end.what)
        if failed and end.what:
            what, _, hint = end.what.partition("\n")
            self.cancel(JobEnd(end.code, what, self._pod.where(index), hint.strip()))
        elif failed and not self.workload.led and self.workload.fail_fast:
            self._process_failed(index, end)
        if self.workload.led and index == self.context.lead:
            self._end(Phase.ALL_END)
        self.why.heard(index, None)
        self.meetings.look()
        self._judge_if_over()

    def _process_failed(self, index: int, end: PartEnd) -> None:
        """End the others, and ask every pod: those that a lost one leaves behind fail long before its lease is over."""
        if self._phase not in (Phase.RUNNING, Phase.FAILING):
            return
        self._only_victims = self.workload.is_victim(end.status or 0, FailedPart(end.output, end.error))
        if self._first is None:
            self._first = index
            self._roll_call.begin(index)
        self._end(Phase.FAILING if self._only_victims else Phase.ALL_END)

    def alive(self, index: int) -> None:
        """This pod has answered the roll call."""
        if index not in self._roll_call.silent:
            return
        self._roll_call.silent.discard(index)
        if index in self._open and self._phase is Phase.ALL_END:  # it may have heard only now that it is to end
            self._machine.later(self._shares.own_part, self._stop_waiting)
        self._judge_if_over()

    def worker_lost(self, index: int, reason: str) -> None:
        """A pod is gone. Where pods do not need each other (`exec`) the run goes on without it, and tells of it."""
        if index not in self.indices or self.over:
            return
        self.lost[index] = reason
        self._open.discard(index)
        self._unprepared.discard(index)
        self.ranks_over(index)
        if self.workload.fail_fast or self.workload.led:
            # Also when its part is done: nobody can tell whether the others still need the pod.
            self.cancel(JobEnd(Exit.TRY_AGAIN, "a pod was lost during the run", self._pod.where(index), reason))
            if index == self.context.lead:
                self._end(Phase.ALL_END)
        self._roll_call.silent.discard(index)
        self.why.heard(index, None)
        self._judge_if_over()

    def waits_for(self, index: int) -> bool:
        """Is this pod's part not over, or has it not answered?"""
        return index in self._open or index in self._roll_call.silent

    # Ending it

    def cancel(self, end: JobEnd, *, told: bool = False) -> None:
        """End the run for this reason, unless one stands already. `told`: it comes from outside, as that of some ends
        always does: the run has the grace time."""
        # Ranks that have only missed another one have a cause elsewhere.
        explains = self._phase is Phase.FAILING and not is_told(end)
        if self._first is None or self._roll_call.silent or explains:
            self._cause = merged(self._cause, end)
        if self._phase < Phase.SAVING:
            self._told = told or is_told(end)
            by_lead = self.workload.led and self.context.lead in self._open
            self._end(Phase.SAVING if self._told else Phase.LEAD_ENDS if by_lead else Phase.ALL_END)
            self._judge_if_over()
        elif told or is_told(end):
            self._machine.later(self._shares.answer, self._roll_call.end)

    def hurry(self) -> None:
        """No more patience."""
        self._tell(sorted(self._open), Stop(self.run_id, hurry=True))

    def _end(self, phase: Phase) -> None:
        """The next step on the way to the end; nothing if it is further already."""
        if self._phase >= phase:
            return
        before, self._phase = self._phase, phase
        self._limits.stop()
        self.why.stop()
        if phase is Phase.FAILING:
            missed = f"{self.run_id} failed on pod {self._first}, where a rank missed another"
            self._pod.log.info(f"{missed}; other pods have {FAILING_SECONDS:.0f} s to fail by themselves")
            self._machine.later(FAILING_SECONDS, self._stop_waiting_for_failures)
            return
        if phase is Phase.SAVING:
            self._tell(sorted(self._open), Stop(self.run_id, told=True))
            self._machine.later(self._shares.part, self._stop_waiting)
            self._machine.later(self._shares.part, self._roll_call.end)
            if self.workload.led:  # mpirun is told when ranks are over everywhere: it would end them all
                self._saving = set(self._open)
                self._machine.later(self._shares.save, lambda: self._end(Phase.LEAD_ENDS))
            return
        # All: mpirun's or the first failure's own pod, too. One that is over already ignores it.
        self._tell([self.context.lead] if phase is Phase.LEAD_ENDS else sorted(self._open), Stop(self.run_id))
        if before is not Phase.SAVING or phase is Phase.ALL_END:
            self._machine.later(self._shares.own_part, self._stop_waiting)

    def ranks_over(self, index: int) -> None:
        """This pod's ranks are over."""
        if self._phase is Phase.RUNNING and index in self._ranks_run:
            self._ranks_run.discard(index)
            if not self._ranks_run:
                self._tell([self.context.lead], Stop(self.run_id, ranks_over=True))
        if self._phase is Phase.SAVING and index in self._saving:
            self._saving.discard(index)
            if not self._saving:
                self._end(Phase.LEAD_ENDS)

    def _stop_waiting_for_failures(self) -> None:
        if self._phase is Phase.FAILING:
            self._end(Phase.ALL_END)

    def _stop_waiting(self) -> None:
        """Pods that were told to end have had their time, but for those that may not have heard it."""
        for index in sorted(self._open - self._roll_call.silent):
            self.lost[index] = "it did not answer when the run was ended"
        self._open &= self._roll_call.silent
        self._judge_if_over()

    def _judge_if_over(self) -> None:
        if self._phase in (Phase.BOOKED, Phase.OVER) or self._open or self._roll_call.silent:
            return
        self._phase = Phase.OVER
        self._limits.stop()
        self.why.stop()
        try:
            judgement = self._judgement()
        except Exception:
            # Whoever waits for this run must hear of its end, whatever is broken.
            judgement = Judgement(from_bug(traceback.format_exc(), self._pod.where(0)))
            self._pod.log.error(str(judgement.end))
        self._tell_judgement(judgement)
        self.told_to_begin.happen()

    def _judgement(self) -> Judgement:
        """What the workload makes of it all. Without any part's end there is nothing to judge but why it was ended."""
        lead = self.ends.get(self.context.lead, PartEnd(None))
        ranks: dict[int, RankEnd] = {}
        for end in self.ends.values():
            ranks.update(end.ranks)
        failed = {index: end for index, end in self.ends.items() if end.status}
        outcome = Outcome(
            status=lead.status or 0,
            record=lead.record,
            output=lead.output,
            tokens=self.preparations.tokens(self.context),
            statuses={index: end.status for index, end in self.ends.items() if end.status is not None},
            ranks=ranks,
            lost=dict(self.lost),
            notes={index: end.notes for index, end in self.ends.items() if end.notes},
            first=self._first,
            failures={index: FailedPart(end.output, end.error) for index, end in failed.items()},
            cause=self._cause,
            told=self._told,
            stuck=lead.stuck,
        )
        if self._cause is not None and not self.ends:
            return Judgement(self._cause)
        judgement = judged(self.workload, self.context, outcome, only_victims=self._only_victims)
        if self._cause is not None and self.workload.led and self.context.lead not in self.ends:
            judgement = judgement._replace(end=self._cause)
        return judgement

"""The course of one run, as its coordinator decides it: a value, and what each word of a pod makes of it.

Nothing happens here. `agent.lifecycle.runs.running` asks what follows, and does what entering a phase means.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import NamedTuple

from agent.decide.ending import JobEnd, is_told, merged


class Phase(IntEnum):
    """How far a run is. It never goes back, and may leave out what lies between: see NEXT."""

    BOOKED = 0
    """Something that must be known of its pods is not, yet."""
    PREPARING = 1
    """Every pod was told to get its part ready."""
    RUNNING = 2
    """Every pod was told to go."""
    FAILING = 3
    """A process failed because another did, by its own words: the others have a little time to fail by themselves."""
    SAVING = 4
    """It was told to end from outside: every pod tells its own processes, which have the grace time."""
    LEAD_ENDS = 5
    """mpirun was told to end. The other pods, on which it has daemons, are told when it has ended."""
    ALL_END = 6
    """Every pod was told to end its part."""
    OVER = 7
    """Judged."""


NEXT: Mapping[Phase, Collection[Phase]] = {
    Phase.BOOKED: {Phase.PREPARING, Phase.SAVING, Phase.ALL_END},
    Phase.PREPARING: {Phase.RUNNING, Phase.SAVING, Phase.LEAD_ENDS, Phase.ALL_END, Phase.OVER},
    Phase.RUNNING: {Phase.FAILING, Phase.SAVING, Phase.LEAD_ENDS, Phase.ALL_END, Phase.OVER},
    Phase.FAILING: {Phase.SAVING, Phase.ALL_END, Phase.OVER},
    Phase.SAVING: {Phase.LEAD_ENDS, Phase.ALL_END, Phase.OVER},
    Phase.LEAD_ENDS: {Phase.ALL_END, Phase.OVER},
    Phase.ALL_END: {Phase.OVER},
    Phase.OVER: (),
}
"""What may follow each phase. What would lead anywhere else has come too late, and changes nothing."""


class Course(NamedTuple):
    """How far a run is, whom it waits for, and why it ends. Each method returns the next value."""

    pods: frozenset[int]
    lead: int
    """The pod with rank 0."""
    led: bool
    """An MPI run: only the lead has a process, which reaches the other pods itself."""
    fail_fast: bool
    """The first part that fails ends the others, and all begin together."""
    may_start_again: bool = False
    """What is lost is better ended at once: nobody waits until mpirun has ended its ranks."""
    phase: Phase = Phase.BOOKED
    open: frozenset[int] = frozenset()
    """Pods whose part is not over."""
    unprepared: frozenset[int] = frozenset()
    """Pods that must say first that their part can begin."""
    with_ranks: frozenset[int] = frozenset()
    """Pods of an MPI run whose ranks are not over."""
    silent: frozenset[int] = frozenset()
    """Pods that were asked whether they are there, since a process failed, and have not answered."""
    lost: Mapping[int, str] = {}
    """Why pods of this run are lost."""
    first: int | None = None
    """The pod whose process failed first. What comes after is its consequence."""
    only_victims: bool = False
    """All that failed until the others were ended did so because another had, by their own words."""
    cause: JobEnd | None = None
    """Why it is ended before its time; the first weighty reason stays (see `merged`)."""
    told: bool = False
    """It was told to end from outside."""

    @property
    def needs_all(self) -> bool:
        """A lost pod ends it. Where pods do not need each other (`exec`) it goes on without that one."""
        return self.fail_fast or self.led

    @property
    def may_go(self) -> bool:
        """No pod has to be waited for any more before all begin."""
        return self.phase is Phase.PREPARING and not self.unprepared

    @property
    def waits(self) -> bool:
        """Is there a pod whose end or answer must come before the verdict?"""
        return bool(self.open or self.silent)

    def waits_for(self, index: int) -> bool:
        return index in self.open or index in self.silent

    def to(self, phase: Phase) -> Course:
        """The same in that phase, if it may follow; else unchanged."""
        return self._replace(phase=phase) if phase in NEXT[self.phase] else self

    # Beginning

    def prepare(self, lost: Mapping[int, str]) -> Course:
        """All but the lost pods are told to get ready."""
        open_ = self.pods - lost.keys()
        unprepared = open_ if self.fail_fast else frozenset()
        with_ranks = self.pods if self.led else frozenset()
        course = self._replace(open=open_, unprepared=unprepared, with_ranks=with_ranks, lost=dict(lost))
        return course.to(Phase.PREPARING)

    def prepared(self, index: int) -> Course:
        return self._replace(unprepared=self.unprepared - {index})

    # What pods say

    def part_over(self, index: int) -> Course:
        """Nothing is left of this pod's part."""
        return self.prepared(index)._replace(open=self.open - {index})

    def ranks_over(self, index: int) -> Course:
        """The ranks on this pod are over. mpirun is told to end when those of all pods are that were told to save."""
        if self.phase not in (Phase.RUNNING, Phase.SAVING) or index not in self.with_ranks:
            return self
        course = self._replace(with_ranks=self.with_ranks - {index})
        return course.to(Phase.LEAD_ENDS) if self.phase is Phase.SAVING and not course.with_ranks else course

    def failed(self, index: int, *, victim: bool) -> Course:
        """A process has failed where the first one ends the others; as a `victim` it says that another had before."""
        if self.phase not in (Phase.RUNNING, Phase.FAILING):
            return self
        if self.first is None:
            self = self._replace(first=index, silent=self.pods)
        return self._replace(only_victims=victim).to(Phase.FAILING if victim else Phase.ALL_END)

    def answered(self, index: int) -> Course:
        return self._replace(silent=self.silent - {index})

    def gone(self, index: int, why: str) -> Course:
        """A pod is lost."""
        return self.part_over(index)._replace(lost={**self.lost, index: why})

    # Ending

    def cancelled(self, end: JobEnd, *, told: bool = False) -> Course:
        """It ends for this reason, unless one stands already. `told`: from outside, as some ends always are."""
        told = told or is_told(end)
        # Ranks that have only missed another one have a cause elsewhere.
        explains = self.phase is Phase.FAILING and not is_told(end)
        # Once a process has failed and every pod has answered, what comes later is a consequence of that.
        if self.first is None or self.silent or explains:
            self = self._replace(cause=merged(self.cause, end))
        if self.phase >= Phase.SAVING:
            return self
        if told:
            with_ranks = self.open if self.led else self.with_ranks
            return self._replace(told=True, with_ranks=with_ranks).to(Phase.SAVING)
        by_lead = self.led and self.lead in self.open and not self.may_start_again
        return self.to(Phase.LEAD_ENDS if by_lead else Phase.ALL_END)

    def given_up(self) -> Course:
        """Pods that were told to end have had their time, but for those that may not have heard it."""
        late = dict.fromkeys(sorted(self.open - self.silent), "it did not answer when the run was ended")
        return self._replace(lost={**self.lost, **late}, open=self.open & self.silent)

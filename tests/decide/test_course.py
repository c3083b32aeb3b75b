"""The course of a run: which phase follows which, and what each word of a pod makes of it."""

from __future__ import annotations

from collections.abc import Callable
from graphlib import TopologicalSorter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.ending import JobEnd
from agent.errors import Exit
from agent.lifecycle.runs.course import NEXT, Course, Phase

PODS = frozenset(range(4))
LOST = JobEnd(Exit.TRY_AGAIN, "a pod was lost")
SIGNAL = JobEnd(Exit.TERMINATED, "told to end")
MPI = Course(PODS, 0, led=True, fail_fast=True)
TORCHRUN = Course(PODS, 0, led=False, fail_fast=True)
EXEC = Course(PODS, 0, led=False, fail_fast=False)


def at(kind: Course, phase: Phase) -> Course:
    """That kind of run in that phase, with all parts going on once they were told to prepare."""
    return kind if phase is Phase.BOOKED else kind.prepare({})._replace(phase=phase)


def test_no_phase_comes_again() -> None:
    assert NEXT.keys() == set(Phase)
    TopologicalSorter({phase: list(following) for phase, following in NEXT.items()}).prepare()
    assert all(phase < one for phase, following in NEXT.items() for one in following)


@pytest.mark.parametrize(
    ("kind", "phase", "end", "then"),
    [
        (TORCHRUN, Phase.BOOKED, LOST, Phase.ALL_END),
        (MPI, Phase.BOOKED, SIGNAL, Phase.SAVING),
        (MPI, Phase.PREPARING, LOST, Phase.LEAD_ENDS),
        (MPI, Phase.RUNNING, LOST, Phase.LEAD_ENDS),
        (TORCHRUN, Phase.RUNNING, LOST, Phase.ALL_END),
        (TORCHRUN, Phase.RUNNING, SIGNAL, Phase.SAVING),
        (TORCHRUN, Phase.FAILING, SIGNAL, Phase.SAVING),
        (MPI, Phase.SAVING, LOST, Phase.SAVING),
        (MPI, Phase.LEAD_ENDS, SIGNAL, Phase.LEAD_ENDS),
    ],
)
def test_a_reason_to_end(kind: Course, phase: Phase, end: JobEnd, then: Phase) -> None:
    course = at(kind, phase).cancelled(end)
    assert (course.phase, course.cause) == (then, end)
    assert course.told == (end is SIGNAL and phase < Phase.SAVING)


def test_without_its_lead_an_mpi_run_ends_on_all_pods_at_once() -> None:
    assert at(MPI, Phase.RUNNING).gone(0, "dead").cancelled(LOST).phase is Phase.ALL_END


@pytest.mark.parametrize(("victims", "phase"), [([True], 3), ([True, True], 3), ([True, False], 6), ([False], 6)])
def test_who_only_missed_another_gives_that_one_time(victims: list[bool], phase: int) -> None:
    course = at(TORCHRUN, Phase.RUNNING)
    for index, victim in enumerate(victims, start=1):
        course = course.part_over(index).failed(index, victim=victim)
    assert (course.phase, course.first, course.silent) == (phase, 1, PODS)
    assert course.only_victims == victims[-1]


def test_a_failure_stays_the_cause_once_every_pod_has_answered() -> None:
    """What fails after the others were told to end is their doing."""
    course = at(TORCHRUN, Phase.ALL_END)
    assert course.failed(1, victim=False) is course
    failed = at(TORCHRUN, Phase.RUNNING).failed(1, victim=False)
    assert failed.cancelled(LOST).cause == LOST, "a pod that has not answered may be why"
    assert failed._replace(silent=frozenset()).cancelled(LOST).cause is None


def test_mpirun_is_told_when_the_ranks_are_over_on_all_pods_that_save() -> None:
    course = at(MPI, Phase.RUNNING).part_over(3).cancelled(SIGNAL)
    for index in (2, 1):
        course = course.ranks_over(index)
        assert course.phase is Phase.SAVING
    assert course.ranks_over(3).phase is Phase.SAVING, "it is over already"
    assert course.ranks_over(0).phase is Phase.LEAD_ENDS


def test_who_may_not_have_heard_that_it_ends_has_not_had_its_time() -> None:
    asked = at(TORCHRUN, Phase.RUNNING).failed(0, victim=False).answered(0).answered(1)
    course = asked.given_up()
    assert (set(course.open), set(course.lost)) == ({2, 3}, {0, 1})


def test_exec_waits_for_nobody() -> None:
    assert EXEC.prepare({2: "dead"}).may_go and not EXEC.needs_all
    assert EXEC.prepare({2: "dead"}).open == PODS - {2}
    assert not TORCHRUN.prepare({}).may_go


INDICES = st.sampled_from(sorted(PODS))
ENDS = st.sampled_from([LOST, SIGNAL])
EVENTS: st.SearchStrategy[Callable[[Course], Course]] = st.one_of(
    st.builds(lambda i: lambda course: course.prepared(i), INDICES),
    st.builds(lambda i: lambda course: course.part_over(i), INDICES),
    st.builds(lambda i: lambda course: course.ranks_over(i), INDICES),
    st.builds(lambda i: lambda course: course.answered(i), INDICES),
    st.builds(lambda i: lambda course: course.gone(i, "dead"), INDICES),
    st.builds(lambda i, victim: lambda course: course.failed(i, victim=victim), INDICES, st.booleans()),
    st.builds(lambda end, told: lambda course: course.cancelled(end, told=told), ENDS, st.booleans()),
    st.builds(lambda phase: lambda course: course.to(phase), st.sampled_from(Phase)),
    st.just(lambda course: course.given_up()),
)  # fmt: skip


@given(st.sampled_from([MPI, TORCHRUN, EXEC]), st.lists(EVENTS, max_size=20))
def test_whatever_comes_it_never_goes_back_and_can_always_end(kind: Course, events: list[Any]) -> None:
    course = kind.prepare({})
    for event in events:
        before, course = course, event(course)
        assert course.phase is before.phase or course.phase in NEXT[before.phase]
        assert course.open <= before.open and course.unprepared <= before.unprepared
        assert before.first in (None, course.first) and before.lost.keys() <= course.lost.keys()
    for index in course.silent:
        course = course.answered(index)
    course = course.cancelled(LOST).given_up()
    assert not course.waits and course.to(Phase.OVER).phase is Phase.OVER

"""A rank that takes as long as it usually does is not said to hang."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.clinic.interface import diagnose
from agent.clinic.sources.rank_steps import RankSteps
from agent.clinic.why.pace import Pace, Steps
from agent.clinic.why.records import Collected
from tests.clinic.recordings import collected
from tests.fake.clock import Clock

STEPS = {"longest": 12.0, "every": 4.0}


def paced(name: str, least: float = 60.0, **pace: float) -> Collected:
    """A recording of four ranks, all with that pace."""
    seen = collected(name)
    pods = [
        pod._replace(processes=tuple(one._replace(pace=Pace(**pace)) for one in pod.processes)) for pod in seen.pods
    ]
    return seen._replace(pods=tuple(pods), hang_seconds=least)


@pytest.mark.parametrize(
    ("name", "still", "status", "begins"),
    [
        ("sleep", 3, "moves", "no operation for 3 s; before, one every 4 s, and at most 12 s without one: rank 2 ("),
        ("sleep", 30, "waits", "no operation for 30 s; before, one every 4 s, and at most 12 s without one: rank 2 ("),
        ("sleep", 60, "hangs", "rank 2 ("),
        ("sigstop", 3, "hangs", "rank 2 ("),
        ("other-operation", 3, "hangs", "rank 2 ("),
        ("circle", 3, "circle", "4 ranks wait for each other"),
        ("nobody waits", 3, "moves", "nothing hangs so far: no operation for 3 s; before, one every 4 s"),
        ("nobody waits", 30, "moves", "nothing hangs so far: no operation for 30 s"),
        ("nobody waits", 90, "unclear", "cannot tell"),
    ],
)
def test_what_takes_time_is_only_called_a_hang_when_it_takes_longer_than_ever(
    name: str, still: float, status: str, begins: str
) -> None:
    seen = paced("sleep" if name == "nobody waits" else name, still=still, **STEPS)
    if name == "nobody waits":
        seen = without_waits(seen)
    found = diagnose(seen)
    assert (found.status, found.sentence.startswith(begins)) == (status, True), found


def without_waits(seen: Collected) -> Collected:
    """All ranks are in the code of the one that sleeps, after the same operation."""
    processes = [process for pod in seen.pods for process in pod.processes if process.role == "rank"]
    (asleep,) = [one for one in processes if one.rank == 2]
    pods = [
        pod._replace(
            processes=tuple(
                one._replace(threads=asleep.threads, waiting=asleep.waiting, groups=asleep.groups)
                for one in pod.processes
                if one.role == "rank"
            )
        )
        for pod in seen.pods
    ]
    return seen._replace(pods=tuple(pods))


def test_its_own_longest_time_counts_where_it_is_longer() -> None:
    assert diagnose(paced("sleep", still=200, longest=300, every=4)).status == "moves"
    assert diagnose(paced("sleep", still=310, longest=300, every=4)).status == "hangs"


def test_another_group_that_goes_on_hides_nothing() -> None:
    """One of two groups hangs: what the ranks of the other do is not asked."""
    seen = paced("two", still=100, **STEPS)
    first, *others = seen.pods
    busy = tuple(one._replace(pace=Pace(0.0, **STEPS)) for one in first.processes)
    found = diagnose(seen._replace(pods=(first._replace(processes=busy), *others)))
    assert found.status == "hangs" and "no operation for 100 s" in found.sentence, found


@pytest.mark.parametrize(
    ("pace", "words"),
    [
        (Pace(41.2), "no operation for 41 s"),
        (Pace(41.2, 5, 4), "no operation for 41 s; before, one every 4 s"),
        (Pace(41.2, 12, 4), "no operation for 41 s; before, one every 4 s, and at most 12 s without one"),
        (Pace(41.2, 0, 0.04), "no operation for 41 s; before, 25 a second"),
    ],
)
def test_its_words(pace: Pace, words: str) -> None:
    assert pace.words("operation") == words


def test_how_long_a_program_takes_to_start_is_not_a_step() -> None:
    steps = Steps(0, 0.0).seen(0, 10.0).seen(5, 300.0).seen(10, 310.0)
    assert steps.pace(315.0) == Pace(5.0, 10.0, 2.0)


def test_a_smaller_number_is_that_of_another_process() -> None:
    assert Steps(0, 0.0).seen(5, 10.0).seen(9, 20.0).seen(1, 30.0) == Steps(1, 30.0)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0.1, 100)), max_size=20), st.floats(0, 100))
def test_times_are_those_of_looks(looks: list[tuple[int, float]], later: float) -> None:
    steps, now, number = Steps(0, 0.0), 0.0, 0
    grew = [0.0]
    for more, apart in looks:
        now, number = now + apart, number + more
        steps = steps.seen(number, now)
        grew += [now] if more else []
    pace = steps.pace(now + later)
    assert pace.still == pytest.approx(now + later - grew[-1], abs=0.1)
    between = [after - before for before, after in pairwise(grew[1:])]
    assert pace.longest == pytest.approx(max(between, default=0.0), abs=0.1)


def test_ranks_are_counted_one_look_after_the_other_until_the_run_is_over() -> None:
    """Also after one for which there was no thread."""
    clock, looks, run = Clock(), list[tuple[Any, ...]](), SimpleNamespace(goes_on=True)
    aside = lambda work, done, refused: looks.append((done, refused))  # noqa: E731
    machine: Any = SimpleNamespace(now=lambda: clock.now, later=clock.after, aside=aside)
    steps = RankSteps(machine, "/none", lambda: run.goes_on)
    steps.start()
    for second, number, answer in (
        (35, 1, lambda: None),  # the first look has not ended
        (45, 2, lambda: looks[0][1](OSError("no more threads"))),
        (55, 3, lambda: looks[1][0]({11: 5})),
        (65, 3, lambda: setattr(run, "goes_on", looks[2][0]({}))),
    ):
        answer()
        while clock.step(second):
            pass
        assert len(looks) == number
    assert {pid: pace.still for pid, pace in steps.paces().items()} == {11: 20.0}
    assert clock.pending == 0

"""All ways to hang of tests/clinic/cluster/programs/hangs.py, as their ranks were seen: what is said is true."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent.clinic.interface import diagnose
from agent.clinic.why.records import Frame, GroupProgress, Process, Thread
from tests.clinic.hangs import HANGS, LEAST_RIGHT, Hang, blamed, is_right
from tests.clinic.recordings import hang_seen


@pytest.mark.parametrize("hang", HANGS, ids=[hang.name for hang in HANGS])
def test_no_healthy_rank_is_blamed_and_most_hangs_are_named(hang: Hang) -> None:
    found = diagnose(hang_seen(hang.name))
    assert blamed(found) <= set(hang.guilty)
    assert is_right(hang, found) == (hang.judged != "cannot tell"), found
    assert hang.words in found.sentence


def test_most_are_judged_rightly() -> None:
    assert len({hang.name for hang in HANGS}) == 39
    assert sum(is_right(hang, diagnose(hang_seen(hang.name))) for hang in HANGS) >= LEAST_RIGHT


def with_another_group(process: Process) -> Process:
    return process._replace(groups=(*process.groups, GroupProgress("7", "gloo", 0)))


@pytest.mark.parametrize("name", ["init", "monitored-barrier"])
@pytest.mark.parametrize(
    ("ranks", "change"),
    [
        ({0}, with_another_group),
        ({0}, lambda process: process._replace(stays=False)),
        ({3}, lambda process: process._replace(stays=False)),
        ({3}, lambda process: process._replace(threads=(), stays=None)),
        ({2}, lambda process: process._replace(threads=(Thread("MainThread", (Frame("work", "/app/x.py", 1),)),))),
    ],
    ids=["a group of some ranks", "a rank came later", "the late rank moves", "unseen", "two are not in it"],
)
def test_what_has_no_number_blames_nobody_in_doubt(
    name: str, ranks: set[int], change: Callable[[Process], Process]
) -> None:
    seen = hang_seen(name)
    pods = [
        pod._replace(processes=tuple(change(one) if one.rank in ranks else one for one in pod.processes))
        for pod in seen.pods
    ]
    found = diagnose(seen._replace(pods=tuple(pods)))
    assert (found.status, blamed(found)) == ("unclear", set())


def test_a_child_that_has_ended_is_told_only_of_a_rank_that_waits_for_its_children() -> None:
    """Recorded of a rank that reads a queue."""
    assert "; its worker, pid " in diagnose(hang_seen("dead-child")).sentence
    seen = hang_seen("sleep")
    late = next(one for one in seen.pods[1].processes if one.rank == 2)
    child = Process(9, late.pid, "Z", "other")
    pods = (seen.pods[0], seen.pods[1]._replace(processes=(*seen.pods[1].processes, child)))
    assert "worker" not in diagnose(seen._replace(pods=pods)).sentence

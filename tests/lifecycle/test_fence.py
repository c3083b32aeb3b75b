"""The fence: what a pod runs of a run with lives is over before pod 0 can take the pod for lost."""

from __future__ import annotations

import errno
import math
from typing import Any

import pytest

from agent.decide.fence import KILL_SECONDS, LOOK_SECONDS, fence_seconds
from agent.lifecycle.waits import BEAT_SECONDS
from tests.fake.process import FOREVER, FakeChild, FakeGuard, Life
from tests.fake.world import USUAL, FakeWorld, all_are, first_run
from tests.lifecycle.test_lives import programs, replace
from tests.lifecycle.test_submitted import sleeping

LEASE = USUAL.lease
FENCE = fence_seconds(LEASE)
LIVES = {"A4_LIVES": "1"}
TRIP = 0.1
"""More than any message takes where nothing is delayed."""


def with_lives(workload: str = "script", **each: Any) -> FakeWorld:
    """A run with lives has been going on for 20 s."""
    world = first_run(env=LIVES, workload=workload, **each)
    world.wait(20)
    return world


def guard(world: FakeWorld, index: int) -> FakeGuard:
    return world.pod(index).agent.guards[0]


def process(world: FakeWorld, index: int) -> FakeChild:
    """That of the run, or of its first life."""
    return next(child for child in world.pod(index).agent.children if type(child) is FakeChild)


def is_lost(world: FakeWorld, index: int) -> bool:
    role: Any = world.pod(0).agent.role
    return index in role.roster.lost.reasons() or role.roster.peers[index].lost


def killed_at(world: FakeWorld, index: int) -> float:
    """The second at which the pod's process is gone."""
    world.until(lambda: process(world, index).over)
    return world.seconds


# While all goes well


def test_each_acknowledged_beat_moves_the_fence() -> None:
    world = with_lives()
    for _ in range(100):
        world.wait(1)
        for pod in world.pods[1:]:
            left = guard(world, pod.index).deadline - pod.agent.now()
            assert FENCE - BEAT_SECONDS - TRIP < left <= FENCE
    assert guard(world, 0).deadline == math.inf


def test_nothing_is_left_of_it_after_the_run() -> None:
    world = first_run(env=LIVES, life=Life(0, 100))
    assert world.run() == all_are(0)
    assert [[one.closed for one in pod.agent.guards] for pod in world.pods] == [[True]] * 4
    assert not any(one.fired for pod in world.pods for one in pod.agent.guards)


@pytest.mark.parametrize("env", [{}, {"A4_LIVES": "0"}])
def test_runs_without_lives_have_none(env: dict[str, str]) -> None:
    world = first_run(env=env)
    world.wait(60)
    assert [pod.agent.guards for pod in world.pods] == [[]] * 4
    roles: list[Any] = [pod.agent.role for pod in world.pods]
    assert not any(role._pod.fence.number_beat() for role in roles)


def test_pods_without_a_process_of_an_mpi_run_have_one_too() -> None:
    """mpirun's daemons come by ssh, and carry the marks."""
    world = with_lives("connectivity")
    assert [len(pod.agent.guards) for pod in world.pods] == [1] * 4


# When pod 0 hears a pod late, or not at all


@pytest.mark.parametrize("seconds", [1.0, 5.0, 10.0])
def test_beats_that_are_a_little_late_end_nothing(seconds: float) -> None:
    world = with_lives()
    world.net.delays[2, 0] = seconds
    world.wait(100)
    assert not process(world, 2).over, world.dump()
    assert not is_lost(world, 2)


@pytest.mark.parametrize("to_pod_0", [*range(20, 61, 5), math.inf])
@pytest.mark.parametrize("from_pod_0", [0, 5, 20])
@pytest.mark.parametrize("phase", [0.0, 1.7, 4.9])
def test_all_is_over_on_a_pod_before_pod_0_gives_it_up(to_pod_0: float, from_pod_0: float, phase: float) -> None:
    world = with_lives()
    world.wait(phase)
    if to_pod_0 == math.inf:
        world.net.mute.add((2, 0))
    else:
        world.net.delays[2, 0] = to_pod_0
    world.net.delays[0, 2] = from_pod_0
    world.until(lambda: process(world, 2).over or is_lost(world, 2))
    assert process(world, 2).over, world.dump()
    killed = world.seconds
    if to_pod_0 > LEASE + TRIP:
        world.until(lambda: is_lost(world, 2))
        assert killed + KILL_SECONDS + LOOK_SECONDS < world.seconds, world.dump()


def test_an_agent_that_runs_ends_its_part_itself_and_lives_on() -> None:
    world = with_lives()
    guard(world, 2).closed = True  # it stands still
    cut = world.seconds
    world.net.mute.add((2, 0))
    assert cut + FENCE - BEAT_SECONDS - TRIP < killed_at(world, 2) <= cut + FENCE + TRIP
    assert world.pod(2).has("fenced")
    assert world.pod(2).living
    assert "this pod ends its part of script-" in world.pod(2).log.getvalue()


# When an agent stands still


@pytest.mark.parametrize("timers_first", [True, False])
def test_the_guard_of_an_agent_that_stands_still_kills_in_time(timers_first: bool) -> None:
    world = with_lives()
    world.pod(2).pause(2 * LEASE, timers_first=timers_first)
    killed = killed_at(world, 2)
    assert not is_lost(world, 2)
    world.until(lambda: is_lost(world, 2))
    assert killed + KILL_SECONDS + LOOK_SECONDS < world.seconds
    world.until_event("fenced", 2)


@pytest.mark.parametrize("timers_first", [True, False])
def test_what_waits_for_an_agent_that_wakes_has_come_too_late(timers_first: bool) -> None:
    """Pod 0's acknowledgements are 15 s on their way: what it has heard before the agent stood still arrives meanwhile,
    and would have moved the fence."""
    world = with_lives()
    world.net.delays[0, 2] = 15.0
    world.wait(30)
    guard(world, 2).closed = True  # it stands still, too
    assert not process(world, 2).over
    world.pod(2).pause(12, timers_first=timers_first)
    world.wait(11)
    assert not process(world, 2).over
    world.wait(1.5)
    assert process(world, 2).over
    assert world.pod(2).has("fenced")


def test_an_agent_that_stands_still_for_a_moment_loses_nothing() -> None:
    world = with_lives()
    world.pod(2).pause(15)
    world.wait(60)
    assert not process(world, 2).over
    assert not world.pod(2).has("fenced")


@pytest.mark.parametrize("index", [0, 2])
def test_nothing_runs_on_when_the_agent_is_gone(index: int) -> None:
    world = with_lives()
    gone = world.seconds
    world.pod(index).kill_agent()
    assert killed_at(world, index) == pytest.approx(gone, abs=TRIP)


# When another pod takes its place


def test_no_replacement_is_let_in_while_the_pod_before_may_run() -> None:
    """Its node is cut off without a word, and Kubernetes has been told that it is gone."""
    world = with_lives()
    before = process(world, 2)
    world.pod(2).strand()
    replace(world, 2)
    world.until(lambda: process(world, 0).over, limit=world.seconds + LEASE - BEAT_SECONDS)
    ran_on = not before.over
    assert ran_on, "pod 0 has met the other one, and knows that it needs a new life"
    world.until(lambda: len(programs(world, 0)) == 2)
    assert before.over
    world.until(lambda: bool(programs(world, 2)))
    assert programs(world, 2)[0].launch.env["A4_LIFE"] == "2"


# Guards that fail


def test_a_part_whose_guard_cannot_be_started_does_not_begin() -> None:
    world = FakeWorld(4, "script", LIVES, life=FOREVER)
    world.pod(2).refusing["guard"] = errno.EAGAIN
    assert world.run() == all_are(71)
    assert "the guard of script-" in world.pod(0).said()["what"]
    assert not any(pod.workloads() for pod in world.pods)


def test_a_part_whose_guard_is_gone_is_ended() -> None:
    world = with_lives()
    gone = world.seconds
    guard(world, 2).die()
    assert killed_at(world, 2) == pytest.approx(gone, abs=TRIP)
    assert "its guard is gone" in world.pod(2).log.getvalue()


# Leases


def test_a_run_with_lives_on_a_lease_that_is_too_short_is_refused() -> None:
    world = sleeping(env={"A4_LEASE_SECONDS": "5"})
    answer = world.ask(1, "submit", spec={"workload": "script", "by": "pod 1", "lives": 2})
    assert answer["error"]["code"] == 78, answer
    assert "A4_LEASE_SECONDS=5 should be at least 10" in answer["error"]["what"]
    world.submit(1, "script")

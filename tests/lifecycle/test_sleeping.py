"""SLEEP_INFINITY: the formed cluster stays after its result, until it is told to go."""

from __future__ import annotations

import pytest

from tests.fake.pod import KILLED
from tests.fake.process import Life
from tests.fake.world import USUAL, FakeWorld

TERMINATED = 143
"""The code of a pod that is told to end while it sleeps after a 0, with which Kubernetes would count it as complete."""


def asleep(code: int, pods: int = 4) -> FakeWorld:
    """A cluster that sleeps since about second 10."""
    world = FakeWorld(pods, "script", {"SLEEP_INFINITY": "true"})
    world.pod(pods - 1).life = Life(code, 10)
    world.until(world.asleep)
    world.wait(20)
    assert world.asleep(), world.dump()
    assert {pod.said()["code"] for pod in world.pods} == {code}
    return world


@pytest.mark.parametrize(("code", "pods"), [(0, 4), (7, 4), (7, 1)])
def test_it_stays_until_the_coordinator_is_told(code: int, pods: int) -> None:
    world = asleep(code, pods)
    world.wait(10_000)
    assert all(pod.living for pod in world.pods), world.dump()
    world.pod(0).signal()
    assert set(world.run(20_000).values()) == {code or TERMINATED}, world.dump()
    assert world.last() < 10_000 + 35


@pytest.mark.parametrize("code", [0, 7])
def test_all_pods_are_told(code: int) -> None:
    world = asleep(code)
    for pod in world.pods:
        world.at(100 + (3 - pod.index) * 0.3, pod.signal)
    assert set(world.run().values()) == {code or TERMINATED}, world.dump()
    assert {pod.said()["code"] for pod in world.pods} == {code or TERMINATED}
    assert world.last() < 105


@pytest.mark.parametrize("code", [0, 7])
@pytest.mark.parametrize("is_told", [False, True])
def test_a_worker_that_goes_leaves_the_rest(is_told: bool, code: int) -> None:
    world = asleep(code)
    if is_told:
        world.pod(2).signal()
    else:
        world.pod(2).kill()
    world.wait(200)
    assert [pod.living for pod in world.pods] == [True, True, False, True], world.dump()
    assert is_told or f"{world.pod(2).where}, is lost: " in world.pod(0).log.getvalue()
    world.pod(0).signal()
    told = code or TERMINATED
    assert world.run() == {0: told, 1: told, 2: told if is_told else KILLED, 3: told}, world.dump()


@pytest.mark.parametrize("code", [0, 7])
def test_a_lost_coordinator_ends_every_worker_with_the_recorded_code(code: int) -> None:
    world = asleep(code)
    world.pod(0).kill()
    assert world.run() == {0: KILLED, 1: code, 2: code, 3: code}, world.dump()
    assert world.last() < 30 + USUAL.lease + 10


@pytest.mark.parametrize(("index", "back"), [(0, 10_000), (2, 50)])
def test_a_silent_pod_is_taken_back_or_all_end_with_the_recorded_code(index: int, back: float) -> None:
    world = asleep(7)
    world.net.isolate(index)
    world.at(back, lambda: world.net.heal(index))
    world.at(300, world.pod(0).signal)
    assert set(world.run().values()) == {7}, world.dump()


def test_a_sleeping_worker_that_starts_anew_does_not_sleep_for_ever() -> None:
    world = asleep(0)
    world.pod(2).kill()
    world.at(60, world.pod(2).start)
    world.wait(1000)
    assert [world.pod(index).living for index in (0, 1, 3)] == [True] * 3, world.dump()
    assert world.pod(2).code in (69, 75), world.dump()


@pytest.mark.parametrize("scene", ["forming", "running"])
def test_a_signal_before_the_result_ends_a_job_that_would_sleep(scene: str) -> None:
    world = FakeWorld(3, "script", {"SLEEP_INFINITY": "true"})
    if scene == "forming":
        world.pod(2).starts = 1000
    world.at(5, world.pod(0).signal)
    world.at(5.5, world.pod(1).signal)
    if scene == "running":
        world.at(5.8, world.pod(2).signal)
    world.wait(60)
    assert world.pod(0).code == world.pod(1).code == 143, world.dump()


def test_a_signal_after_the_result_of_a_job_that_does_not_sleep_changes_no_code() -> None:
    world = FakeWorld(3, "script")
    world.until_event("result-known", 0, 1)
    world.net.isolate(2)  # pod 0 waits for its word that it knows the result
    world.pod(0).signal()
    world.run()
    assert (world.pod(0).code, world.pod(1).code) == (0, 0), world.dump()


def test_a_signal_after_a_release_changes_no_code() -> None:
    world = asleep(0)
    world.every(life=Life(seconds=None, term_seconds=1.0))
    world.submit(0, "script")
    world.wait(10)
    assert world.ask(0, "release", force=True)["ok"] == {"code": 0}
    world.pod(0).signal()
    assert set(world.run().values()) == {0}, world.dump()

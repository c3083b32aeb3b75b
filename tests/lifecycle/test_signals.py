"""Pods that are told to end: the coordinator, one worker, all of them, in every phase, and in their sleep."""

from __future__ import annotations

from functools import partial
from signal import SIGINT, SIGKILL, SIGTERM, SIGUSR1, SIGUSR2

import pytest

from tests.fake.pod import KILLED
from tests.fake.process import FOREVER, STUBBORN, Life
from tests.fake.world import USUAL, FakeWorld, all_are, first_run

GRACE = USUAL.grace


def forever() -> FakeWorld:
    return FakeWorld(4, "script", life=FOREVER)


@pytest.mark.parametrize(("number", "code"), [(SIGTERM, 143), (SIGINT, 130)])
@pytest.mark.parametrize(("pods", "most"), [(3, 20 + GRACE - 3), (4, 25)], ids=["discovery", "run"])
def test_the_coordinator(pods: int, most: float, number: int, code: int) -> None:
    world = forever()
    if pods == 3:
        world.pod(3).starts = None
    world.at(20, lambda: world.pod(0).signal(number))
    assert world.run() == all_are(code, pods), world.dump()
    if pods == 4:
        assert set(world.ends().values()) == {(code, "agent", world.pod(0).where)}
    assert world.last() < most


def test_the_coordinator_before_anything() -> None:
    world = forever()
    world.until(lambda: world.pod(0).living)
    agent = world.pod(0).agent
    agent.call(lambda: agent.role.signalled(SIGTERM))
    codes = world.run()
    assert codes[0] == 143, world.dump()
    assert world.last([world.pod(0)]) == 0, "it waits for nobody, as it has looked for nobody"
    assert {codes[index] for index in (1, 2, 3)} in ({143}, {69}), world.dump()


@pytest.mark.parametrize("index", [0, 1])
def test_who_has_the_result_keeps_its_code(index: int) -> None:
    """Also the coordinator while it announces."""
    world = FakeWorld(4, "script")
    world.pod(2).life = Life(7, 10)
    world.until_event("result-known", index)
    world.pod(index).signal()
    assert world.run() == all_are(7), world.dump()


@pytest.mark.parametrize("life", [FOREVER, STUBBORN])
def test_one_worker_during_the_run(life: Life) -> None:
    world = first_run(life=life)
    world.pod(2).signal()
    assert world.run() == {0: 75, 1: 75, 2: 143, 3: 75}, world.dump()
    assert world.last() < GRACE
    for pod in world.others(2):
        assert pod.said()["where"] == world.pod(2).where
        assert "SIGTERM" in pod.said()["what"]
    assert world.pod(2).said()["code"] == 143


def test_one_worker_during_discovery() -> None:
    world = forever()
    world.pod(3).starts = None
    world.at(20, world.pod(2).signal)
    codes = world.run()
    assert codes == {0: 75, 1: 75, 2: 143}, world.dump()
    assert world.last() < 20 + GRACE


@pytest.mark.parametrize("second", [0.0001, 0.001, 0.01, 0.05, 0.1, 0.15, 0.2, 0.5])
def test_one_worker_that_the_coordinator_has_not_met(second: float) -> None:
    """Before its sshd is there, and before the others are: it stays until it has said why it goes."""
    world = forever()
    for pod in world.others(2):
        pod.starts = 1.5
    world.at(second, world.pod(2).signal)
    assert world.run() == {0: 75, 1: 75, 2: 143, 3: 75}, world.dump()
    assert world.pod(0).said()["where"] == world.pod(2).where
    assert world.last() < 10


def test_one_worker_long_before_the_coordinator_comes() -> None:
    """It has gone when the coordinator looks for it, as a pod that never came."""
    world = forever()
    world.pod(0).starts = 30
    world.at(20, world.pod(2).signal)
    assert world.run() == {0: 69, 1: 69, 2: 143, 3: 69}, world.dump()


@pytest.mark.parametrize("index", [0, 2])
def test_a_second_signal_hurries(index: int) -> None:
    world = forever()
    world.pod(index).life = STUBBORN
    world.until_event("run-started")
    world.at(5, world.pod(index).signal)
    world.at(6, world.pod(index).signal)
    codes = world.run()
    assert codes[index] == 143, world.dump()
    assert world.pod(index).workloads()[0][1] == [SIGTERM, SIGKILL]
    assert world.last() < 11


@pytest.mark.parametrize("step", range(8))
def test_a_signal_to_all_while_the_result_is_on_its_way(step: int) -> None:
    """Who has it keeps it; who was told to end first says so; the coordinator has it."""
    world = FakeWorld(3, "script")
    world.until_event("result-known", 0)
    knew = []
    for pod in world.pods:
        world.at(world.seconds + 0.0004 * step, lambda pod=pod: knew.append(pod.has("result-known")))  # type: ignore[misc]
        world.at(world.seconds + 0.0004 * step, pod.signal)
    codes = world.run()
    assert list(codes.values()) == [0 if known else 143 for known in knew], world.dump()


def test_a_signal_at_every_moment_of_a_short_job() -> None:
    """Told before its result: 143; after it: the result. Never anything else, whoever is told."""
    for step in range(60):
        world = FakeWorld(3, "script", seed=step)
        world.every(life=Life(7, 0.5))
        world.at(0.02 * step, world.signal)
        codes = world.run()
        first = world.pod(0).code
        assert first in (7, 143), world.dump()
        assert set(codes.values()) <= {first, 143}, world.dump()


def test_a_signal_while_pods_that_start_late_are_waited_for_to_hear_of_the_end() -> None:
    world = FakeWorld(3, "connectivity")
    world.pod(0).programs.pop("mpirun")
    world.pod(2).starts = None
    world.at(5, world.pod(0).signal)
    assert world.run() == {0: 66, 1: 66}, world.dump()
    assert world.last() < 8


@pytest.mark.parametrize("number", [SIGUSR1, SIGUSR2])
def test_a_signal_for_workloads_reaches_their_processes_in_that_pod_alone(number: int) -> None:
    """Before there is one it means nothing."""
    world = forever()
    world.until(lambda: world.pod(1).living)
    early = world.pod(1).agent
    early.call(partial(early.role.parts.signal, number))
    world.until_event("run-started")
    world.wait(1)
    for agent in (world.pod(0).agent, world.pod(2).agent):
        agent.call(partial(agent.role.parts.signal, number))
    got = {pod.index: [child.signals for child in pod.agent.children if child.signals] for pod in world.pods}
    assert got == {0: [[number]], 1: [], 2: [[number]], 3: []}, world.dump()
    world.pod(0).signal()
    assert world.run() == all_are(143)


# SLEEP_INFINITY: the formed cluster stays after its result, until it is told to go


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
    world.wait(4000)
    assert all(pod.living for pod in world.pods), world.dump()
    world.pod(0).signal()
    assert set(world.run(5000).values()) == {code or TERMINATED}, world.dump()
    assert world.last() < 4000 + 35


@pytest.mark.parametrize("code", [0, 7])
@pytest.mark.parametrize("is_told", [False, True])
def test_a_worker_that_goes_leaves_the_rest(is_told: bool, code: int) -> None:
    world = asleep(code)
    if is_told:
        world.pod(2).signal()
        world.wait(0.5)
        error = world.ask(1, "submit", spec={"workload": "exec", "args": ["x"]})["error"]
        assert error["code"] == 75 and "--exclude 2" in error["hint"], error
    else:
        world.pod(2).kill()
    world.wait(200)
    assert [pod.living for pod in world.pods] == [True, True, False, True], world.dump()
    assert is_told or f"{world.pod(2).where}, is lost: " in world.pod(0).log.getvalue()
    world.pod(0).signal()
    told = code or TERMINATED
    assert world.run() == {0: told, 1: told, 2: told if is_told else KILLED, 3: told}, world.dump()


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


def test_a_signal_after_a_release_changes_no_code() -> None:
    world = asleep(0)
    world.every(life=Life(seconds=None, term_seconds=1.0))
    world.submit(0, "script")
    world.wait(10)
    assert world.ask(0, "release", force=True)["ok"] == {"code": 0}
    world.pod(0).signal()
    assert set(world.run().values()) == {0}, world.dump()

"""Pods that are told to end: the coordinator, one worker, all of them, in every phase."""

from __future__ import annotations

import itertools
from functools import partial
from signal import SIGINT, SIGKILL, SIGTERM, SIGUSR1, SIGUSR2

import pytest

from tests.fake.process import FOREVER, STUBBORN, Life
from tests.fake.world import USUAL, FakeWorld, all_are

GRACE = USUAL.grace


def forever(pods: int = 4, life: Life = FOREVER, **env: str) -> FakeWorld:
    return FakeWorld(pods, "script", env, life=life)


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
    world = forever(life=life)
    world.until_event("run-started")
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


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize(("pods", "gap"), [(3, 0.0), (3, 0.0005), (3, 0.05), (3, 0.5), (4, 0.4)])
def test_all_pods_in_any_order(order: tuple[int, ...], pods: int, gap: float) -> None:
    """During the run, or while a fourth pod is waited for."""
    world = forever(pods)
    world.pods[-1].starts = 0.0 if pods == 3 else None
    for place, index in enumerate(order):
        world.at(20 + place * gap, world.pod(index).signal)
    assert world.run() == all_are(143, 3), world.dump()
    assert world.last() < 20 + GRACE - 3


@pytest.mark.parametrize(("gap", "grace"), [(0.0, GRACE), (0.3, GRACE), (0.0, 10.0)])
def test_all_pods_whose_scripts_take_the_signal_badly(gap: float, grace: float) -> None:
    world = forever(4, STUBBORN, A4_GRACE_SECONDS=str(grace))
    for pod in world.pods:
        world.at(5 + gap * (3 - pod.index), pod.signal)
    assert world.run() == all_are(143), world.dump()
    assert world.last() < 5 + grace - 3, world.dump()


def test_all_pods_with_scripts_that_end_with_a_code_of_their_own() -> None:
    """A checkpoint takes 5 s and ends 0 or 3: the job was told to end nevertheless."""
    world = forever(4, Life(seconds=None, term_seconds=5, term_status=3))
    world.pod(1).life = Life(seconds=None, term_seconds=5, term_status=0)
    world.until_event("run-started")
    for pod in world.pods:
        world.at(5 + 0.2 * pod.index, pod.signal)
    assert world.run() == all_are(143), world.dump()


@pytest.mark.parametrize("index", [0, 2])
def test_a_second_signal_hurries(index: int) -> None:
    world = forever(4)
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
        for pod in world.pods:
            pod.life = Life(7, 0.5)
            world.at(0.02 * step, pod.signal)
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
    world = forever()
    world.until_event("run-started")
    world.wait(1)
    for agent in (world.pod(0).agent, world.pod(2).agent):
        agent.call(partial(agent.role.parts.signal, number))
    got = {pod.index: [child.signals for child in pod.agent.children if child.signals] for pod in world.pods}
    assert got == {0: [[number]], 1: [], 2: [[number]], 3: []}, world.dump()
    world.pod(0).signal()
    assert world.run() == all_are(143)


def test_a_signal_for_workloads_means_nothing_before_there_is_one() -> None:
    world = forever()
    world.until(lambda: world.pod(1).living)
    agent = world.pod(1).agent
    agent.call(lambda: agent.role.parts.signal(SIGUSR1))
    world.until_event("run-started")
    world.pod(0).signal()
    assert world.run() == all_are(143)

"""How pods leave a cluster that sleeps when nobody has released it, and what becomes of a run that goes on there."""

from __future__ import annotations

import pytest

from tests.fake.process import SSHD, Life
from tests.fake.world import USUAL, FakeWorld
from tests.lifecycle.test_signals import asleep

LOST = 75
"""The code of a pod that has lost the coordinator in its sleep."""


@pytest.mark.parametrize("code", [0, 7])
@pytest.mark.parametrize("anew", [False, True])
def test_a_lost_coordinator_ends_every_worker_but_never_with_0(code: int, anew: bool) -> None:
    """Kubernetes would count the indices of these pods as complete. A pod 0 that comes back knows nothing of them."""
    world = asleep(code)
    world.pod(0).kill()
    if anew:
        world.at(world.seconds + 5, world.pod(0).start)
    world.run()
    assert [world.pod(index).code for index in (1, 2, 3)] == [code or LOST] * 3, world.dump()
    assert world.last([world.pod(1)]) < 30 + USUAL.lease + 10
    message = world.pod(1).said()
    assert (message["code"], message.get("job_code", code)) == (code or LOST, code)
    assert code or "coordinator" in message["why"]


def test_a_worker_whose_link_is_down_leaves_with_its_own_reason() -> None:
    world = asleep(0)
    world.net.isolate(2)
    world.wait(200)
    assert [pod.code for pod in world.pods] == [None, None, LOST, None], world.dump()


@pytest.mark.parametrize("code", [0, 7])
@pytest.mark.parametrize("index", [0, 2])
def test_a_pod_whose_sshd_is_given_up_leaves_with_71(index: int, code: int) -> None:
    """Nobody could reach it again: of pod 0, that ends the cluster."""
    world = asleep(code)
    for second in range(0, 40, 5):
        world.at(world.seconds + second, world.pod(index).kill_sshd)
    world.wait(100)
    ended = [index] if index else range(4)
    assert {pod.index: pod.code for pod in world.pods if not pod.living} == dict.fromkeys(ended, code or 71)
    assert index or code or "sshd ended with status" in world.pod(3).said()["why"]


def test_a_bug_in_pod_0_ends_a_cluster_in_its_sleep_with_70(monkeypatch: pytest.MonkeyPatch) -> None:
    world = asleep(0)

    def broken(*arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("agent.lifecycle.runs.verdict.judge", broken)
    monkeypatch.setattr("agent.lifecycle.runs.verdict.from_bug", broken)
    world.submit(1, "script")
    assert set(world.run().values()) == {70}, world.dump()
    assert "ZeroDivisionError" in world.pod(2).said()["why"]


@pytest.mark.parametrize("timers_first", [False, True])
@pytest.mark.parametrize("leases", [0.88, 0.9, 0.95, 1.0, 1.05, 2.0])
@pytest.mark.parametrize("late", [0.0, 4.0])
@pytest.mark.parametrize("index", [0, 2])
def test_no_run_is_good_whose_program_an_agent_has_cut_off(
    index: int, late: float, leases: float, timers_first: bool
) -> None:
    """An agent stands still for about a lease. Programs save when they are told to end, and end with 0. How late a pod
    started decides which of two pods heard the other last."""
    world = FakeWorld(3, "none", {"SLEEP_INFINITY": "true"}, life=Life(seconds=90, term_seconds=1.0, term_status=0))
    world.pod(2).starts = late
    world.until(world.asleep)
    run_id = world.submit(1, "script")
    world.wait(5)
    programs = [child for pod in world.pods for child in pod.agent.children if child.launch.argv[0] != SSHD]
    assert programs
    world.pod(index).pause(leases * USUAL.lease, timers_first=timers_first)
    world.wait(200)
    whole = not any(program.signals for program in programs)
    good = any(run["id"] == run_id and run["code"] == 0 for run in world.pod(0).state()["runs"])
    assert good == whole, world.dump()
    assert whole or leases > 0.9, world.dump()

"""Runs of a script on a formed cluster, and every way in which it may end by itself."""

from __future__ import annotations

import errno

import pytest

from tests.fake.process import FOREVER, STUBBORN, Life
from tests.fake.world import USUAL, FakeWorld, all_are

TERM, KILL = 15, 9


def test_all_scripts_end_well() -> None:
    world = FakeWorld(4, "script")
    for pod in world.pods:
        pod.life = Life(seconds=10.0 * (pod.index + 1))
    assert world.run() == all_are(0), world.dump()
    assert 40 < world.last() < 45
    assert world.ends() == dict.fromkeys(range(4), (0, "workload", ""))
    assert [pod.workloads() for pod in world.pods] == [[("bash", [])]] * 4


@pytest.mark.parametrize("index", [0, 2])
@pytest.mark.parametrize(
    ("status", "code"), [(1, 1), (7, 7), (75, 75), (143, 143), (255, 255), (-11, 139), (-9, 137), (-15, 143)]
)
def test_one_script_fails(index: int, status: int, code: int) -> None:
    world = FakeWorld(4, "script")
    for pod in world.pods:
        pod.life = Life(status, 20) if pod.index == index else FOREVER
    assert world.run() == all_are(code), world.dump()
    where = world.pod(index).where
    assert world.ends() == dict.fromkeys(range(4), (code, "workload", where))
    for pod in world.others(index):
        assert pod.workloads() == [("bash", [TERM])]
    others = "1-3" if index == 0 else "0-1,3"
    assert f"pods {others} ended because of it" in world.pod(0).said()["why"]
    assert world.last() < 25


def test_a_script_that_the_kernel_kills_because_memory_ran_out() -> None:
    world = FakeWorld(3, "script")
    for pod in world.pods:
        pod.life = FOREVER
        pod.memory_kills = 4  # of earlier runs
    victim = world.pod(2)
    victim.life = Life(-KILL, 20)
    world.at(15, lambda: setattr(victim, "memory_kills", 5))
    assert world.run() == all_are(137, 3), world.dump()
    assert (
        world.pod(0)
        .said()["why"]
        .startswith(f"memory ran out in {victim.where}, and the kernel killed processes there")
    )


def test_memory_that_ran_out_earlier_is_no_cause_of_a_run_that_never_began() -> None:
    world = FakeWorld(3, "script")
    for pod in world.pods:
        pod.memory_kills = 4  # of earlier runs
    world.pod(2).refusing["bash"] = errno.ENOENT
    assert world.run() == all_are(66, 3), world.dump()
    assert "memory ran out" not in world.pod(0).said()["why"]


def test_the_failure_that_arrives_first_decides() -> None:
    world = FakeWorld(4, "script", life=FOREVER)
    world.pod(3).life = Life(5, 20)
    world.pod(1).life = Life(6, 20.5)
    assert world.run() == all_are(5), world.dump()
    assert {end[2] for end in world.ends().values()} == {world.pod(3).where}


def test_what_the_stopped_ones_end_with_changes_nothing() -> None:
    world = FakeWorld(3, "script")
    world.pod(0).life = Life(seconds=None, term_status=3)
    world.pod(1).life = Life(9, 5)
    world.pod(2).life = Life(seconds=None, term_status=0)
    assert world.run() == all_are(9, 3), world.dump()


@pytest.mark.parametrize("index", [0, 2])
def test_a_script_that_ignores_sigterm_is_killed(index: int) -> None:
    world = FakeWorld(4, "script")
    for pod in world.pods:
        pod.life = STUBBORN if pod.index == index else FOREVER
    world.pod(1).life = Life(7, 20)
    assert world.run() == all_are(7), world.dump()
    assert world.pod(index).workloads() == [("bash", [TERM, KILL])]
    assert world.last() < 20 + 17


@pytest.mark.parametrize("index", [0, 2])
def test_a_script_that_cannot_be_started(index: int) -> None:
    world = FakeWorld(4, "script", life=FOREVER)
    world.pod(index).refusing["bash"] = errno.ENOENT
    assert world.run() == all_are(66), world.dump()
    assert set(world.ends().values()) == {(66, "agent", world.pod(index).where)}


def test_what_a_script_leaves_behind_is_swept() -> None:
    world = FakeWorld(2, "script")
    world.pod(1).life = Life(leftovers=3)
    assert world.run() == all_are(0, 2), world.dump()
    assert "ended 3 processes" in world.pod(1).log.getvalue()


def test_output_stays_unchanged() -> None:
    world = FakeWorld(2, "script")
    world.pod(1).life = Life(output=b"\xff\0 half a line")
    world.run()
    assert world.pod(1).agent.emitted[1] == b"\xff\0 half a line"


@pytest.mark.parametrize("index", [0, 2])
def test_a_channel_that_comes_back_costs_nothing(index: int) -> None:
    """All messages arrive once, whatever is cut when."""
    world = FakeWorld(4, "script")
    for pod in world.pods:
        pod.life = Life(seconds=20.0 + pod.index)
    for second in (0.13, 0.1305, 0.131, 0.132, 0.14, 4.9, 5.0, 19.9, 20.0, 20.2, 21.5, 22.16, 23.15, 23.16, 23.17):
        world.at(second, lambda: world.net.cut(index))
    assert world.run() == all_are(0), world.dump()
    for pod in world.pods:
        assert len(pod.workloads()) == 1
        assert pod.events().count("run-started") == pod.events().count("result-known") == 1


@pytest.mark.parametrize("index", [0, 2])
def test_a_short_silence_costs_nothing(index: int) -> None:
    world = FakeWorld(4, "script", life=Life(seconds=30 + USUAL.lease))
    world.at(30, lambda: world.net.isolate(index))
    world.at(25 + USUAL.lease, lambda: world.net.heal(index))
    assert world.run() == all_are(0), world.dump()
    assert [len(pod.workloads()) for pod in world.pods] == [1, 1, 1, 1]


def test_a_run_that_ends_during_a_silence() -> None:
    world = FakeWorld(4, "script")
    for pod in world.pods:
        pod.life = Life(3, 40) if pod.index == 2 else FOREVER
    world.at(30, lambda: world.net.isolate(2))
    world.at(50, lambda: world.net.heal(2))
    assert world.run() == all_are(3), world.dump()


def test_a_run_that_ends_while_its_silence_is_looked_at_is_not_called_silent() -> None:
    env = {"A4_WHY_SECONDS": "60", "SLEEP_INFINITY": "true"}
    world = FakeWorld(2, "script", env, life=Life(seconds=62), evidence_seconds=8)
    world.wait(200)
    assert world.asleep(), world.dump()
    assert "has printed nothing" not in world.pod(0).log.getvalue()


def test_a_first_run_that_fits_into_no_message_is_refused() -> None:
    """An entrypoint's arguments come through no request, which has a limit of its own."""
    world = FakeWorld(3, "script")
    world.pod(0).wish = {"args": ("\udcff" * 100_000,) * 8}
    assert set(world.run().values()) == {2}, world.dump()
    assert "put long ones into a file" in world.pod(2).said()["why"]
    assert world.last() < 5

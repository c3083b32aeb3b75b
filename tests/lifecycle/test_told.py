"""Runs that are told to end from outside: how long they have, who is told before whom, and the warning before it."""

from __future__ import annotations

from collections.abc import Callable
from signal import SIGINT, SIGKILL, SIGTERM, SIGUSR1

import pytest

from agent.decide.ranks import MPI_RANK, TORCHRUN_RANK
from tests.fake.process import FOREVER, STUBBORN, Life
from tests.fake.world import USUAL, FakeWorld
from tests.lifecycle.test_submitted import ends, sleeping
from tests.lifecycle.test_submitted import running as running_for_pod_1

GRACE = 120.0
TERM_SECONDS = 100.0
"""What a workload has of it."""
ENV = {"A4_GRACE_SECONDS": "120"}
WARNED = {**ENV, "A4_WARN_SIGNAL": "USR1", "A4_WARN_SECONDS": "60"}
SAVES = Life(seconds=None, term_seconds=25)
"""It needs that long to save its state."""

Tell = Callable[[FakeWorld], int]
"""How the newest run is told to end; returns its exit code."""


def running(workload: str, life: Life, ranks: Life | None = None, env: dict[str, str] | None = None) -> FakeWorld:
    """A sleeping cluster, whose pods have the code 0 of its first run, in which another run goes on."""
    return running_for_pod_1(workload, env=env or ENV, life=life, ranks_life=ranks)[0]


def by_sigterm(world: FakeWorld) -> int:
    """As for a job that is deleted."""
    world.signal()
    return 143


def by_ctrl_c(world: FakeWorld) -> int:
    world.signal(SIGINT)
    return 130


def by_cancel(world: FakeWorld) -> int:
    world.ask(2, "cancel", run="", why="somebody")
    return 130


def ended(world: FakeWorld, code: int) -> float:
    """Until the newest run is over, with this code; how long that took."""
    began = world.seconds
    world.until(lambda: world.pod(0).events().count("run-ended") == 2)
    assert world.pod(0).state()["runs"][-1]["code"] == code, world.dump()
    return world.seconds - began


def told(world: FakeWorld, *expected: tuple[int, str]) -> bool:
    """Have the ranks of every pod been told this: signals, and by which variable they are known?"""
    return [[one[1:] for one in pod.told] for pod in world.pods] == [list(expected)] * 4


def signals(world: FakeWorld) -> list[list[int]]:
    """What each pod's process of the newest run was told."""
    return [pod.workloads()[-1][1] if pod.workloads() else [] for pod in world.pods]


@pytest.mark.parametrize("tell", [by_sigterm, by_ctrl_c, by_cancel])
def test_a_script_that_needs_25_seconds_has_them(tell: Tell) -> None:
    world = running("script", SAVES)
    assert 25 <= ended(world, tell(world)) < 30, world.dump()
    assert signals(world) == [[SIGTERM]] * 4


@pytest.mark.parametrize("tell", [by_sigterm, by_cancel])
def test_who_does_not_end_is_killed_when_the_time_is_over(tell: Tell) -> None:
    world = running("script", STUBBORN)
    began = world.seconds
    assert TERM_SECONDS <= ended(world, tell(world)) < TERM_SECONDS + 10, world.dump()
    assert signals(world) == [[SIGTERM, SIGKILL]] * 4
    if tell is by_sigterm:
        world.run()
        assert world.last() < began + GRACE - 3, world.dump()


def test_what_the_agent_decides_itself_takes_no_longer_than_it_did() -> None:
    world = FakeWorld(4, "script", ENV, life=STUBBORN)
    world.pod(1).life = Life(7, 20)
    assert world.run() == dict.fromkeys(range(4), 7), world.dump()
    assert 30 <= world.last() < 35


@pytest.mark.parametrize("is_second", [True, False])
def test_a_word_of_hurry_kills_at_once(is_second: bool) -> None:
    world = running("script", STUBBORN)
    if is_second:
        by_cancel(world)
    world.ask(2, "cancel", run="", why="somebody", hurry=True)
    assert ended(world, 130) < 4, world.dump()
    assert all(SIGKILL in one for one in signals(world))


def test_processes_that_outlive_the_shell_of_a_script_have_the_time_too() -> None:
    """bash ends at once when it is told to; the program that it has started saves its state."""
    world = running("script", Life(seconds=None, group_seconds=25))
    assert 25 <= ended(world, by_cancel(world)) < 30, world.dump()


@pytest.mark.parametrize("tell", [by_sigterm, by_ctrl_c, by_cancel])
def test_ranks_are_told_first_and_mpirun_when_all_are_over(tell: Tell) -> None:
    world = running("mpirun", FOREVER)
    world.pod(1).ranks_life = SAVES
    world.pod(3).ranks_life = Life(seconds=None, term_seconds=40)
    began = world.seconds
    code = tell(world)
    world.until(lambda: told(world, (SIGTERM, MPI_RANK)), began + 1)
    world.wait(39)
    assert signals(world)[0] == []
    assert 0 < ended(world, code) < 5, world.dump()
    assert signals(world)[0] == [SIGTERM]


@pytest.mark.parametrize("tell", [by_sigterm, by_cancel])
def test_ranks_that_do_not_end_hold_mpirun_back_until_the_time_is_over(tell: Tell) -> None:
    world = running("mpirun", STUBBORN, STUBBORN)
    began = world.seconds
    code = tell(world)
    world.wait(TERM_SECONDS - 1)
    assert signals(world)[0] == []
    ended(world, code)
    assert world.seconds - began < TERM_SECONDS + 10, world.dump()
    assert signals(world)[0] == [SIGTERM, SIGKILL]
    if tell is by_sigterm:
        world.run()
        assert world.last() < began + GRACE - 3, world.dump()


@pytest.mark.parametrize("workload", ["torchrun", "script"])
def test_ranks_of_torchrun_are_told_before_it_kills_them_30_seconds_later(workload: str) -> None:
    """A script may have started it, too."""
    world = running(workload, FOREVER, Life(seconds=None, term_seconds=60))
    code = by_cancel(world)
    world.wait(59)
    assert told(world, (SIGTERM, TORCHRUN_RANK))
    assert signals(world) == [[]] * 4
    assert ended(world, code) < 5, world.dump()
    assert signals(world) == [[SIGTERM]] * 4


@pytest.mark.parametrize("tell", [by_sigterm, by_cancel])
def test_ranks_and_what_has_started_them_share_the_time(tell: Tell) -> None:
    world = running("torchrun", STUBBORN, Life(seconds=None, term_seconds=95))
    assert TERM_SECONDS <= ended(world, tell(world)) < TERM_SECONDS + 10, world.dump()


def test_what_has_started_ranks_that_take_all_the_time_has_a_moment_more() -> None:
    world = running("torchrun", Life(seconds=None, term_seconds=2), STUBBORN)
    ended(world, by_cancel(world))
    assert signals(world) == [[SIGTERM]] * 4, world.dump()


@pytest.mark.parametrize("workload", ["script", "mpirun", "torchrun"])
def test_a_worker_that_is_told_alone_takes_nobodys_time(workload: str) -> None:
    """All save their state: they may have to do it together."""
    world = running(workload, *((SAVES, None) if workload == "script" else (FOREVER, SAVES)))
    began = world.seconds
    world.pod(2).signal()
    world.wait(1)
    error = world.ask(2, "submit", spec={"workload": "script"})["error"]
    assert (error["code"], error["what"]) == (75, "this pod is ending")
    ended(world, 75)
    assert 25 <= world.seconds - began < 40, world.dump()
    assert "SIGTERM" in world.pod(0).state()["runs"][-1]["what"], world.dump()
    assert all(SIGKILL not in told for told in signals(world))
    world.wait(40)
    assert [pod.code for pod in world.pods] == [None, None, 143, None], world.dump()
    if workload != "script":
        assert all(pod.told for pod in world.pods)


@pytest.mark.parametrize("workload", ["script", "mpirun"])
def test_a_worker_that_is_told_while_nobody_hears_it_ends_in_time(workload: str) -> None:
    world = running(workload, STUBBORN, STUBBORN)
    began = world.seconds
    world.net.isolate(2)
    world.pod(2).signal()
    world.until(lambda: world.pod(2).code is not None)
    assert world.seconds < began + GRACE - 3


def test_a_coordinator_that_goes_leaves_the_parts_to_their_pods() -> None:
    world = running("mpirun", FOREVER, SAVES)
    began = world.seconds
    by_sigterm(world)
    world.at(began + 10, world.pod(0).kill)
    world.run()
    assert world.last() < began + GRACE - 3, world.dump()


def test_a_pod_that_is_lost_meanwhile_is_not_waited_for() -> None:
    world = running("mpirun", FOREVER, SAVES)
    world.pod(3).ranks_life = STUBBORN
    began = world.seconds
    by_cancel(world)
    world.at(began + 5, world.pod(3).kill)
    assert ended(world, 130) < 65, world.dump()


@pytest.mark.parametrize(
    ("workload", "warned", "ended_by"), [("script", "", TORCHRUN_RANK), ("mpirun", MPI_RANK, MPI_RANK)]
)
def test_a_warning_reaches_the_processes_of_all_pods_before_sigterm(workload: str, warned: str, ended_by: str) -> None:
    world = running(workload, FOREVER, FOREVER, WARNED)
    began = world.seconds
    code = by_cancel(world)
    world.until(lambda: told(world, (SIGUSR1, warned)), began + 1)
    world.wait(59)
    assert all(SIGTERM not in one for one in signals(world))
    assert ended(world, code) < 5, world.dump()
    assert told(world, (SIGUSR1, warned), (SIGTERM, ended_by))
    assert signals(world)[0] == ([SIGTERM] if warned else [SIGUSR1, SIGTERM])


@pytest.mark.parametrize("workload", ["script", "mpirun", "torchrun"])
def test_who_ends_on_the_warning_is_not_waited_for(workload: str) -> None:
    warned = Life(seconds=None, warned_seconds=10)
    world = running(workload, FOREVER if workload == "mpirun" else warned, warned, WARNED)
    assert ended(world, by_cancel(world)) < 20, world.dump()


def test_a_time_to_warn_without_a_signal_takes_nothing() -> None:
    world = running("script", SAVES, env={**ENV, "A4_WARN_SECONDS": "60"})
    assert 25 <= ended(world, by_cancel(world)) < 30, world.dump()


def test_nobody_is_warned_of_an_end_that_the_agent_decides() -> None:
    world = running("script", FOREVER, env=WARNED)
    world.pod(3).kill()
    assert ended(world, 75) < USUAL.lease + 30, world.dump()
    assert SIGUSR1 not in signals(world)[1]


def test_what_is_told_before_it_has_begun_is_over_at_once() -> None:
    world = sleeping(4, ENV, life=SAVES)
    run_id, began = world.submit(1, "script"), world.seconds
    by_cancel(world)
    assert ends(world, 2, run_id)["end"]["code"] == 130, world.dump()
    assert world.seconds < began + 5, world.dump()

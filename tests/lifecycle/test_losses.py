"""Runs on a formed cluster: pods that are killed, cut off or replaced while others need them, and how scripts end."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from signal import SIGKILL, SIGTERM

import pytest

from agent.lifecycle.waits import BEAT_SECONDS
from tests.fake.pod import KILLED
from tests.fake.process import FOREVER, STUBBORN, Life
from tests.fake.world import USUAL, FakeWorld, all_are, first_run

LEASE = USUAL.lease
BEATS = 2 * BEAT_SECONDS
"""A few of them: what may come on top of a lease."""


def running(workload: str = "script", **env: str) -> FakeWorld:
    world = first_run(env=env, workload=workload)
    world.wait(5)
    return world


def kill(world: FakeWorld, *indices: int) -> None:
    for index in indices:
        world.pod(index).kill()


def deafen(world: FakeWorld, index: int) -> None:
    world.net.mute |= {(pod.index, index) for pod in world.others(index)}


def silence(world: FakeWorld, index: int) -> None:
    world.net.mute |= {(index, pod.index) for pod in world.others(index)}


def kill_agent(world: FakeWorld) -> None:
    """Its sshd lives on: that one can log in there does not mean that anybody answers."""
    world.pod(2).kill_agent()


def kill_one_and_isolate_another(world: FakeWorld) -> None:
    kill(world, 2)
    world.net.isolate(3)


def let_nothing_through_but_greetings(world: FakeWorld, index: int) -> None:
    world.net.breaking.add(index)


@pytest.mark.parametrize(
    ("happens", "killed", "most"),
    [
        (lambda world: kill(world, 2), {2}, LEASE),
        (lambda world: kill(world, 0), {0}, LEASE),
        (lambda world: kill(world, 1, 2, 3), {1, 2, 3}, LEASE),
        (kill_agent, {2}, LEASE),
        (kill_one_and_isolate_another, {2}, LEASE + 5),
        *((partial(deafen, index=index), set(), 2 * LEASE + BEATS) for index in (0, 2)),
        *((partial(silence, index=index), set(), 2 * LEASE + BEATS) for index in (0, 2)),
        *((partial(let_nothing_through_but_greetings, index=index), set(), LEASE + BEATS) for index in (0, 2)),
    ],
)
def test_lost_pods_end_the_job(happens: Callable[[FakeWorld], None], killed: set[int], most: float) -> None:
    world = running()
    happens(world)
    assert world.run() == {pod.index: KILLED if pod.index in killed else 75 for pod in world.pods}, world.dump()
    assert world.last() < 5 + most + BEATS, world.dump()
    if killed == {2}:
        assert {pod.said()["where"] for pod in world.pods[:2]} == {world.pod(2).where}


@pytest.mark.parametrize("lease", [4.0, 300.0])
@pytest.mark.parametrize("index", [0, 2])
def test_both_sides_of_a_partition_end(index: int, lease: float) -> None:
    world = running(A4_LEASE_SECONDS=str(lease))
    world.net.isolate(index)
    assert set(world.run().values()) == {75}, world.dump()
    assert world.last() < 5 + lease + BEATS + 5, world.dump()


def test_a_coordinator_that_comes_back_is_another_one() -> None:
    """Its workers have begun their part for the first: theirs ends 75, and the new one learns that they are gone."""
    world = running()
    world.pod(0).kill()
    world.at(10, world.pod(0).start)
    codes = world.run()
    assert [codes[index] for index in (1, 2, 3)] == [75, 75, 75], world.dump()
    assert codes[0] not in (0, None)
    assert world.last(world.others(0)) < 20
    for pod in world.others(0):
        assert "another coordinator" in pod.said()["what"]


def test_a_worker_that_comes_back_is_another_one() -> None:
    world = running()
    world.pod(2).kill()
    world.at(10, world.pod(2).start)
    codes = world.run()
    assert set(codes.values()) == {75}, world.dump()
    assert world.last() < 20
    assert "started anew" in world.pod(1).said()["why"]
    assert "started anew" in world.pod(2).said()["why"], "it need not wait for a coordinator that has given it up"


def test_a_worker_killed_before_the_plan_is_waited_for() -> None:
    world = FakeWorld(4, "script")
    world.pod(3).starts = None
    world.at(20, world.pod(2).kill)
    assert world.run() == {0: 69, 1: 69, 2: KILLED}, world.dump()
    for pod in (world.pod(0), world.pod(1)):
        assert f"{world.pod(2).where}: silent for " in pod.said()["why"]
        assert "10.0.0.3" in pod.said()["why"]


@pytest.mark.parametrize("moment", ["plan-ready", "cluster-formed", "run-started", "run-ended"])
@pytest.mark.parametrize("index", [0, 1])
def test_a_pod_killed_at_a_turning_point(moment: str, index: int) -> None:
    world = FakeWorld(3, "script")
    world.until_event(moment, 0)
    world.pod(index).kill()
    codes = world.run()
    others = {codes[pod.index] for pod in world.others(index)}
    assert len(others) == 1, world.dump()
    if moment != "run-ended":
        assert others <= {75, 69}, world.dump()


def test_a_worker_lost_after_its_part_was_done() -> None:
    """Its script ended with 0, but nobody can tell whether the others still need the pod: 75."""
    world = running()
    world.pod(2).agent.children[-1].die(0)
    world.wait(5)
    world.pod(2).kill()
    codes = world.run()
    assert (codes[0], codes[1], codes[3]) == (75, 75, 75), world.dump()


@pytest.mark.parametrize("lost", [1, 30])
def test_many_pods_lost_at_once_are_told_once(lost: int) -> None:
    world = FakeWorld(40, "none", {"SLEEP_INFINITY": "true"})
    world.until(world.asleep)
    before = world.net.carried
    for pod in world.pods[-lost:]:
        pod.kill()
    world.until(lambda: all(len(pod.state().get("lost", {})) == lost for pod in world.pods[:-lost]))
    assert world.net.carried - before < 200 * lost * (40 - lost) + 100 * 40 * LEASE
    assert world.pod(0).log.getvalue().count(", is lost: silent for ") == min(lost, 12)
    assert f"{40 - lost} pods are left" in world.pod(0).log.getvalue()


def test_a_worker_lost_while_the_others_are_being_stopped() -> None:
    """The first cause stands."""
    world = running()
    for pod in world.pods:
        pod.agent.children[-1].life = Life(seconds=None, term_seconds=8)
    world.pod(1).agent.children[-1].die(7)
    world.at(7, world.pod(2).kill)
    assert world.run() == {0: 7, 1: 7, 2: KILLED, 3: 7}, world.dump()
    assert world.last([world.pod(1), world.pod(3)]) < 5 + USUAL.grace - 3
    assert world.last() < 15 + LEASE + BEATS  # the coordinator gives the lost one its lease


def test_a_lost_pod_of_an_mpi_run() -> None:
    world = running(workload="connectivity")
    world.pod(2).kill()
    assert world.run() == {0: 75, 1: 75, 2: KILLED, 3: 75}, world.dump()
    assert "pod 2" in world.pod(1).said()["where"] + world.pod(1).said()["why"]


@pytest.mark.parametrize("seconds", [None, 60.0])
def test_an_mpirun_that_reports_its_end_and_hangs_is_ended(seconds: float | None) -> None:
    """Open MPI 5.0.11 does that now and then when a rank is killed. One whose next step begins is not: a rank
    had printed the report."""
    world = FakeWorld(3, "connectivity")
    report = b"prterun noticed that process rank 3 with PID 25 on node node-1 exited on\nsignal 6 (Aborted).\n"
    world.pod(0).life = Life(seconds=seconds, term_status=1, output=report)
    world.until_event("run-started")
    path = f"/run/a4-agent/runs/{world.pod(0).state()['run']['id']}/ranks/0"
    if seconds:
        world.at(world.seconds + 7, lambda: world.pod(0).agent.files.update({path: "started 10 of 2\n"}))
    assert seconds or set(world.run().values()) == {134}, world.dump()
    world.run()
    assert (world.last() < 30) == (seconds is None)


@pytest.mark.parametrize("index", [0, 2])
def test_an_agent_that_is_stopped_for_longer_than_a_lease(index: int) -> None:
    world = running()
    world.pod(index).pause(2 * LEASE)
    assert set(world.run().values()) == {75}, world.dump()
    assert world.last(world.others(index)) < 5 + LEASE + BEATS
    assert world.last() < 5 + 3 * LEASE + BEATS  # what it reads first is old


@pytest.mark.parametrize("timers_first", [False, True])
@pytest.mark.parametrize("freezes", [[70.0], [20.0, 14.0], [9.0, 40.0, 12.0]])
@pytest.mark.parametrize("last", [0, 2])
def test_a_machine_that_is_frozen_with_all_its_pods_loses_none(
    last: int, freezes: list[float], timers_first: bool
) -> None:
    """As when a virtual machine is saved or moved. It thaws for moments, in which one agent does not get to run."""
    world = running()
    world.pod(last).pause(sum(freezes), timers_first=timers_first)
    for seconds in freezes:
        for pod in world.others(last):
            pod.pause(seconds - 0.001, timers_first=timers_first)
        world.wait(seconds)
    world.wait(2 * LEASE)
    assert f"this agent did not run for {sum(freezes) - 5:.0f} s" in world.dump()
    assert all(pod.living for pod in world.pods), world.dump()
    assert world.pod(0).state()["phase"] == "running", world.dump()


def test_a_peer_is_tried_about_once_a_second_however_often_its_channel_broke() -> None:
    world = FakeWorld(4)
    world.pod(3).starts = None
    for second in range(2, 30):
        world.at(second / 4, lambda: world.net.cut(2))
    world.at(10, world.pod(2).kill)
    world.until(lambda: world.seconds > 100)
    tries = [index for second, index in world.net.dials if second > 40]
    assert tries.count(2) <= 61, world.dump()
    assert len([name for _, name in world.net.lookups if name == world.pod(3).name]) <= 110


# How scripts end by themselves


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
    ("status", "code"), [(7, 7), (75, 75), (143, 143), (255, 255), (-11, 139), (-9, 137), (-15, 143)]
)
def test_one_script_fails(index: int, status: int, code: int) -> None:
    world = FakeWorld(4, "script", life=FOREVER)
    world.pod(index).life = Life(status, 20)
    assert world.run() == all_are(code), world.dump()
    where = world.pod(index).where
    assert world.ends() == dict.fromkeys(range(4), (code, "workload", where))
    for pod in world.others(index):
        assert pod.workloads() == [("bash", [SIGTERM])]
    others = "1-3" if index == 0 else "0-1,3"
    assert f"pods {others} ended because of it" in world.pod(0).said()["why"]
    assert world.last() < 25


def test_a_script_that_the_kernel_kills_because_memory_ran_out() -> None:
    world = FakeWorld(3, "script", life=FOREVER, memory_kills=4)  # of earlier runs
    victim = world.pod(2)
    victim.life = Life(-SIGKILL, 20)
    world.at(15, lambda: setattr(victim, "memory_kills", 5))
    assert world.run() == all_are(137, 3), world.dump()
    why = f"memory ran out in {victim.where}, and the kernel killed processes there"
    assert world.pod(0).said()["why"].startswith(why)


def test_memory_that_ran_out_earlier_is_no_cause_of_a_run_that_never_began() -> None:
    world = FakeWorld(3, "script", memory_kills=4)  # of earlier runs
    world.pod(2).refusing["bash"] = errno.ENOENT
    assert world.run() == all_are(66, 3), world.dump()
    assert "memory ran out" not in world.pod(0).said()["why"]


def test_the_failure_that_arrives_first_decides_whatever_the_stopped_ones_end_with() -> None:
    world = FakeWorld(4, "script")
    world.pod(0).life = Life(seconds=None, term_status=3)
    world.pod(1).life = Life(6, 20.5)
    world.pod(2).life = Life(seconds=None, term_status=0)
    world.pod(3).life = Life(5, 20)
    assert world.run() == all_are(5), world.dump()
    assert {end[2] for end in world.ends().values()} == {world.pod(3).where}


@pytest.mark.parametrize("index", [0, 2])
def test_a_script_that_ignores_sigterm_is_killed(index: int) -> None:
    world = FakeWorld(4, "script", life=FOREVER)
    world.pod(index).life = STUBBORN
    world.pod(1).life = Life(7, 20)
    assert world.run() == all_are(7), world.dump()
    assert world.pod(index).workloads() == [("bash", [SIGTERM, SIGKILL])]
    assert world.last() < 20 + 17


def test_what_a_script_leaves_behind_is_swept_and_what_it_prints_stays_unchanged() -> None:
    world = FakeWorld(2, "script")
    world.pod(1).life = Life(leftovers=3, output=b"\xff\0 half a line")
    assert world.run() == all_are(0, 2), world.dump()
    assert "ended 3 processes" in world.pod(1).log.getvalue()
    assert world.pod(1).agent.emitted[1] == b"\xff\0 half a line"


def test_a_first_run_that_fits_into_no_message_is_refused() -> None:
    """An entrypoint's arguments come through no request, which has a limit of its own."""
    world = FakeWorld(3, "script")
    world.pod(0).wish = {"args": ("\udcff" * 100_000,) * 8}
    assert set(world.run().values()) == {2}, world.dump()
    assert "put long ones into a file" in world.pod(2).said()["why"]
    assert world.last() < 5

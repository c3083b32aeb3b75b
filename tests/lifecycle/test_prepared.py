"""Before a run begins all of its pods are prepared: whether the agent of a pod is slow changes nothing."""

from __future__ import annotations

import errno

import pytest

from tests.fake.process import FOREVER, Life
from tests.fake.world import FakeWorld
from tests.lifecycle.test_submitted import ends, sleeping

TERM = 15


def started(world: FakeWorld) -> list[int]:
    """Pods on which a workload has been started."""
    return [pod.index for pod in world.pods if pod.workloads()]


@pytest.mark.parametrize("workload", ["mpirun", "torchrun"])
@pytest.mark.parametrize("late", [1, 3])
def test_nobody_starts_before_the_last_is_prepared(workload: str, late: int) -> None:
    world = sleeping(life=Life(3, 5))
    world.pod(late).pause(8)
    run_id = world.submit(0, workload, args=["./train"])
    world.wait(7)
    assert started(world) == []
    assert ends(world, 0, run_id)["end"]["code"] == 3
    assert started(world) == ([0] if workload == "mpirun" else [0, 1, 2, 3])


def test_a_command_beside_runs_waits_for_nobody() -> None:
    world = sleeping()
    world.pod(2).pause(8)
    world.submit(0, "exec", args=["hostname"])
    world.wait(1)
    assert started(world) == [0, 1, 3]


@pytest.mark.parametrize("workload", ["mpirun", "torchrun"])
def test_a_missing_program_is_named_with_its_pods(workload: str) -> None:
    world = sleeping(5, {"A4_PYTHON": "/opt/venv/train"})
    for index in (1, 2, 4):
        world.pod(index).refusing["train"] = errno.ENOENT
    end = ends(world, 0, world.submit(0, workload, args=["./train"]))["end"]
    assert (end["code"], end["origin"], end["where"]) == (66, "agent", "pods 1-2,4")
    assert "cannot be started: No such file or directory" in end["what"]
    assert started(world) == []


def test_a_working_directory_that_hangs_on_one_pod() -> None:
    world = sleeping(4, {"A4_LEASE_SECONDS": "20"}, life=FOREVER)
    world.pod(2).hanging.add("/nfs/job")
    begun = world.seconds
    end = ends(world, 0, world.submit(0, "mpirun", args=["./train"], cwd="/nfs/job"))["end"]
    assert (end["code"], end["what"]) == (75, "not ready for the run within 20 s")
    assert end["where"].startswith("pod 2, ")
    assert started(world) == []
    assert world.seconds - begun < 30


def test_a_command_beside_a_run_hangs_in_its_directory() -> None:
    """Where a person stands in a directory of a server that has stopped: the command waits, the pod goes on."""
    world = sleeping(4, {"A4_LEASE_SECONDS": "20"}, life=FOREVER)
    run_id = world.submit(0, "torchrun", args=["./train"])
    world.wait(5)
    world.pod(2).hanging.add("/nfs/job")
    command = world.submit(1, "exec", args=["hostname"], cwd="/nfs/job")
    world.wait(60)
    assert world.ask(1, "cancel", run=command)["ok"] == {}
    assert ends(world, 1, command)["end"]["code"] == 130
    assert world.ask(1, "cancel", run=run_id)["ok"] == {}
    assert ends(world, 0, run_id)["end"]["code"] == 130


def test_a_run_that_is_cancelled_before_it_begins_starts_nothing() -> None:
    world = sleeping()
    world.pod(2).hanging.add("/nfs/job")
    run_id = world.submit(0, "mpirun", args=["./train"], cwd="/nfs/job")
    world.wait(1)
    assert world.ask(1, "cancel", run=run_id)["ok"] == {}
    assert ends(world, 0, run_id)["end"]["code"] == 130
    assert started(world) == []


def test_a_command_that_has_not_begun_has_no_state_to_save() -> None:
    """exec waits for nobody: the other pods have begun."""
    world = sleeping(life=FOREVER)
    world.pod(2).hanging.add("/nfs/job")
    run_id = world.submit(0, "exec", args=["./train"], cwd="/nfs/job")
    world.wait(1)
    assert world.ask(1, "cancel", run=run_id)["ok"] == {}
    told = ends(world, 0, run_id)
    assert told["end"]["code"] == 130 and told["lost"] == {}
    assert [pod.has("told-to-end") for pod in world.pods] == [True, True, False, True], world.dump()


def test_a_pod_that_is_told_to_end_before_the_run_begins() -> None:
    world = FakeWorld(4, "script")
    world.pod(3).hanging.add("/")
    world.until_event("run-started")
    world.pod(1).signal(TERM)
    codes = world.run()
    assert codes == {0: 75, 1: 143, 2: 75, 3: 75}, world.dump()
    assert started(world) == []

"""Before a run begins all of its pods are prepared: whether the agent of a pod is slow changes nothing. What marks its
processes is made then, and gone with the run."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from agent.decide.run_marks import group_of
from agent.machine.api import RunMarks
from tests.fake.process import FOREVER, Life
from tests.fake.world import FakeWorld
from tests.lifecycle.test_submitted import ends, sleeping


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


def test_a_working_directory_that_hangs_on_one_pod_and_a_run_there_that_is_cancelled() -> None:
    world = sleeping(4, {"A4_LEASE_SECONDS": "20"}, life=FOREVER)
    world.pod(2).hanging.add("/nfs/job")
    begun = world.seconds
    end = ends(world, 0, world.submit(0, "mpirun", args=["./train"], cwd="/nfs/job"))["end"]
    assert (end["code"], end["what"]) == (75, "not ready for the run within 20 s")
    assert end["where"].startswith("pod 2, ")
    assert world.seconds - begun < 30
    cancelled = world.submit(0, "mpirun", args=["./train"], cwd="/nfs/job")
    world.wait(1)
    assert world.ask(1, "cancel", run=cancelled)["ok"] == {}
    assert ends(world, 0, cancelled)["end"]["code"] == 130
    assert started(world) == []


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_pod_that_falls_silent_meanwhile_is_lost_and_no_file_server_is_blamed(is_killed: bool) -> None:
    world = sleeping(4, {"A4_LEASE_SECONDS": "20"}, life=FOREVER)
    world.pod(2).kill() if is_killed else world.pod(2).pause(1000)
    end = ends(world, 0, world.submit(0, "mpirun", args=["./train"]))["end"]
    assert (end["code"], end["what"]) == (75, "a pod was lost before the run began"), end
    assert end["where"].startswith("pod 2, ") and "silent for " in end["why"], end
    assert started(world) == []


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
    world.pod(1).signal()
    codes = world.run()
    assert codes == {0: 75, 1: 143, 2: 75, 3: 75}, world.dump()
    assert started(world) == []


# What marks the processes of a run


OWN = "/sys/fs/cgroup/kubepods.slice/pod.scope"
GROUPS = {"/proc/self/status": "CapEff:\t00000000a80425fb\n", "/proc/self/gid_map": "0 0 4294967295\n"}
CGROUPS = {
    "/proc/self/mountinfo": "26 23 0:24 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw\n",
    "/proc/self/cgroup": "0::/kubepods.slice/pod.scope\n",
}
KINDS: dict[str, dict[str, Any]] = {
    "privileged": {"files": GROUPS | CGROUPS, "directories": {OWN}},
    "not there": {"files": GROUPS | CGROUPS},
    "mark only": {"directories": {OWN}},
}


def cgroups(world: FakeWorld) -> list[str]:
    return sorted(path for pod in world.pods for path in pod.agent.directories if path.startswith(f"{OWN}/"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_pod_marks_its_processes_of_a_run(kind: str) -> None:
    world = sleeping(3, life=FOREVER, **KINDS[kind])
    run_id = world.submit(0, "mpirun", args=["./train"])
    world.until(lambda: bool(world.pod(0).workloads()))
    groups = [group_of(f"{run_id}.{index}") if kind != "mark only" else 0 for index in range(3)]
    made = [f"{OWN}/a4-{run_id}.{index}" if kind == "privileged" else "" for index in range(3)]
    assert cgroups(world) == [path for path in made if path]
    for pod, group, path in zip(world.pods, groups, made, strict=True):
        assert pod.files_now[f"/run/a4-agent/runs/{run_id}/marks"] == f"{group} {path}\n"
        assert f"known by {f'cgroup {path}' if path else 'group' if group else 'A4_RUN'}" in pod.log.getvalue()
    assert world.pod(0).agent.children[-1].marks == RunMarks(run_id, groups[0], made[0])
    world.ask(0, "cancel", run=run_id)
    assert ends(world, 0, run_id)["end"]["code"] == 130
    assert cgroups(world) == []


def test_processes_that_stay_are_told() -> None:
    world = sleeping(3, **KINDS["privileged"])
    world.pod(1).unkillable += range(100, 112)
    world.every(life=Life(0, 1))
    assert ends(world, 0, world.submit(0, "torchrun", args=["./train"]))["end"]["code"] == 0
    assert "SIGKILL has not ended 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, … " in world.pod(1).log.getvalue()
    assert "SIGKILL" not in world.pod(0).log.getvalue()


@pytest.mark.parametrize("workload", ["mpirun", "torchrun", "exec"])
def test_a_run_that_cannot_begin_leaves_no_cgroup(workload: str) -> None:
    world = sleeping(3, **KINDS["privileged"])
    for pod in world.pods:
        pod.refusing |= dict.fromkeys(("train", "python3"), errno.ENOENT)
    assert ends(world, 0, world.submit(0, workload, args=["./train"]))["end"]["code"] == 66
    assert cgroups(world) == []

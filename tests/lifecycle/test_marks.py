"""What marks the processes of a run: made on every pod before anything starts, and gone with the run."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from agent.decide.run_marks import group_of
from agent.machine.api import RunMarks
from tests.fake.process import FOREVER, Life
from tests.fake.world import FakeWorld
from tests.lifecycle.test_submitted import ends, sleeping

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

"""The test bed that stays: `make kube-up`, its use by kubectl and helm of this machine, and its end, also by force."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from agent.workbench.local.sockets import DIRECTORY
from tests.chart.helm import CHART, ROOT
from tests.kubernetes.up import BUSY
from tests.workbench.local.helpers import all_namespaces, cgroups_of, eventually, own_namespaces

WAIT_SECONDS = 600.0
MINE = "registry.example/mine:1"
VALUES = {
    "workload": {"image": MINE, "gpus": 4, "gpusPerNode": 2, "run": "connectivity"},
    "network": {"gibVersion": "", "profile": "none"},
}
SLEEPS = {**VALUES, "workload": {"image": MINE, "gpus": 2, "gpusPerNode": 2}, "task_script": "exec tail -f /dev/null\n"}
LASTING = {"etcd", "kube-apiserver", "jobset", "kueue", "dnsmasq", "tail"}
"""Programs of the control plane, of the nodes, and of the one pod's run."""


class Owner:
    """Somebody at a shell, with a directory of their own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.exports = ""

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "tests.kubernetes.up", "--directory", str(self.directory / "bed"), *words]
        env = {**os.environ, "TMPDIR": str(self.directory)}
        return subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=WAIT_SECONDS)

    def up(self) -> psutil.Process:
        done = self.call("up", "--image", MINE)
        assert done.returncode == 0, done.stderr
        assert "memory: " in done.stderr and "disk: " in done.stderr
        self.exports = done.stdout
        return psutil.Process(int((self.directory / "bed" / "pid").read_text()))

    def type(self, *words: str) -> str:
        """In a shell that has taken what `up` printed."""
        line = f"{self.exports}{shlex.join(words)}"
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=WAIT_SECONDS)
        assert done.returncode == 0, f"{line}: {done.stderr}"
        return done.stdout

    def ended(self, name: str) -> str:
        """The condition in which a JobSet ends, or "" when it has not after DEADLINE."""
        seen = ""

        def over() -> bool:
            nonlocal seen
            true = '{.status.conditions[?(@.status=="True")].type}'
            words = self.type("kubectl", "get", "jobset", name, f"--output=jsonpath={true}").split()
            seen = next((word for word in words if word in ("Completed", "Failed")), "")
            return bool(seen)

        with suppress(AssertionError):
            eventually(over)
        return seen

    def told(self) -> str:
        """For a test that has failed."""
        listed = self.type("kubectl", "get", "jobsets,jobs,pods", "--output=wide")
        described = self.type("kubectl", "describe", "jobsets,pods")
        logs = self.type("kubectl", "logs", "--tail=200", "--prefix", "--selector=jobset.sigs.k8s.io/jobset-name")
        said = (self.directory / "bed" / "log").read_text()[-6000:]
        return f"{listed}\n{described[-12000:]}\n{logs}\nbed:\n{said}"

    def install(self, name: str, values: object) -> None:
        file = self.directory / "values.json"
        file.write_text(json.dumps(values))
        self.type("helm", "install", name, str(CHART), "-f", str(file))

    def down(self) -> str:
        done = self.call("down")
        assert done.returncode == 0, done.stderr
        return done.stderr.strip()


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    owner = Owner(tmp_path)
    yield owner
    owner.down()


def test_a_bed_stays_is_used_and_leaves_nothing_when_it_is_killed_or_ended(owner: Owner) -> None:
    process = owner.up()
    name = cluster_of(process)
    owner.install("sleeps", SLEEPS)
    eventually(lambda: bool(owner.type("kubectl", "get", "pods", "--output=name")), "a pod")
    owner.type("kubectl", "wait", "pod", "--all", "--for=condition=Ready", "--timeout=10m")
    pod = owner.type("kubectl", "get", "pods", "--output=name").strip()
    assert "run " in owner.type("kubectl", "exec", pod, "--", "a4-agent", "status")
    eventually(lambda: {each.name() for each in lasting(process)} == LASTING, f"{LASTING}")
    with own_namespaces([each.pid for each in lasting(process)]) as namespaces:
        process.kill()
        eventually(lambda: not namespaces & all_namespaces(), "the end of all namespaces")
    assert owner.down() == "no test bed runs"
    assert_nothing_of(name, owner)

    process = owner.up()
    name = cluster_of(process)
    again = owner.call("up")
    assert again.returncode == BUSY and "a test bed runs already" in again.stderr and owner.exports in again.stderr
    owner.install("mine", VALUES)
    assert owner.ended("mine") == "Completed", owner.told()
    logs = owner.type("kubectl", "logs", "--tail=-1", "--selector=jobset.sigs.k8s.io/jobset-name=mine")
    assert "connectivity is good: 4 ranks on 2 pods" in logs
    assert owner.down() == "the test bed has ended" and process.wait(WAIT_SECONDS) == 0
    assert_nothing_of(name, owner)


def assert_nothing_of(name: str, owner: Owner) -> None:
    eventually(lambda: not [*cgroups_of(name), *cgroups_of(f"{name}-runtime")], "the end of its cgroups")
    assert name not in os.listdir(DIRECTORY)
    left = [path.name for path in owner.directory.rglob("*") if path.is_file()]
    assert sorted(left) == ["lock", "values.json"]


def cluster_of(owner: psutil.Process) -> str:
    """The name of its local cluster, from the command line of what holds that."""
    (found,) = [words for each in owner.children() if "a4-agent-local" in (words := each.cmdline())]
    return found[-2]


def lasting(owner: psutil.Process) -> list[psutil.Process]:
    """What it has started, but for commands that may end meanwhile."""
    found = []
    for each in owner.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if each.name() in LASTING:
                found.append(each)
    return found

"""The end of the test bed, when nobody can tell it to end."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from agent.local.sockets import DIRECTORY
from tests.chart.helm import ROOT
from tests.local.helpers import all_namespaces, cgroups_of, eventually, own_namespaces

OWNER = """
import sys
from tests.kubernetes.bed import with_nodes
from tests.kubernetes.control_plane import running
from tests.kubernetes.programs import programs

with running(programs()) as plane, with_nodes(plane) as bed:
    bed.install("job", "default", {"workload.gpus": "2", "task_script": "#!/bin/bash\\nexec tail -f /dev/null\\n"})
    bed.formed("job", "default", 1)
    print(plane.cluster.name, flush=True)
    sys.stdin.read()
"""
LASTING = {"etcd", "kube-apiserver", "jobset", "kueue", "dnsmasq", "tail"}
"""Programs of the control plane, of the nodes, and of the one pod's run."""


def test_nothing_is_left_when_the_tests_are_killed(tmp_path: Path) -> None:
    """Their processes would be children of this one then: `nothing_left_behind` would name them."""
    env, pipe = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}, subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", OWNER], stdin=pipe, stdout=pipe, text=True, env=env) as owner:
        assert owner.stdout
        name = owner.stdout.readline().strip()
        assert name, "the test bed has not started"
        eventually(lambda: {each.name() for each in lasting(owner.pid)} == LASTING, f"{LASTING}")
        with own_namespaces([each.pid for each in lasting(owner.pid)]) as namespaces:
            owner.kill()
            eventually(lambda: not namespaces & all_namespaces(), "the end of all namespaces")
    eventually(lambda: not [*cgroups_of(name), *cgroups_of(f"{name}-runtime")], "the end of its cgroups")
    eventually(lambda: name not in os.listdir(DIRECTORY), "the end of its socket")
    assert list(tmp_path.iterdir()) == []


def lasting(owner: int) -> list[psutil.Process]:
    """What it has started, but for commands that may end meanwhile."""
    found = []
    for each in psutil.Process(owner).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if each.name() in LASTING:
                found.append(each)
    return found

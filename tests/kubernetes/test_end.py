"""The end of the test bed, when nobody can tell it to end."""

from __future__ import annotations

import os
import subprocess
import sys
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
    bed.install("job", "default", {"workload.gpus": "2"})
    bed.formed("job", "default", 1)
    print(plane.cluster.name, flush=True)
    sys.stdin.read()
"""
LASTING = {"etcd", "kube-apiserver", "jobset", "kueue", "dnsmasq", "sshd"}
"""Programs of the control plane, of the nodes, and of the one pod."""


def test_nothing_is_left_when_the_tests_are_killed(tmp_path: Path) -> None:
    """Their processes would be children of this one then: `nothing_left_behind` would name them."""
    env, pipe = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}, subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", OWNER], stdin=pipe, stdout=pipe, text=True, env=env) as owner:
        assert owner.stdout
        name = owner.stdout.readline().strip()
        assert name, "the test bed has not started"
        found = {each.pid: each.name() for each in psutil.Process(owner.pid).children(recursive=True)}
        lasting = [pid for pid, program in found.items() if program in LASTING]
        assert {found[pid] for pid in lasting} == LASTING
        with own_namespaces(lasting) as namespaces:
            owner.kill()
            eventually(lambda: not namespaces & all_namespaces(), "the end of all namespaces")
    eventually(lambda: not [*cgroups_of(name), *cgroups_of(f"{name}-runtime")], "the end of its cgroups")
    eventually(lambda: name not in os.listdir(DIRECTORY), "the end of its socket")
    assert list(tmp_path.iterdir()) == []

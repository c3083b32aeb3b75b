"""A cluster that pretends answers as a real one does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agent.testing import FakeCluster
from tests.cluster.conftest import END_SECONDS, Start
from tests.cluster.programs import ask_client
from tests.cluster.work import sleeping

FILES = {"/job/ask_client.py": Path(ask_client.__file__).read_bytes()}


def real(start: Start, steps: str) -> list[str]:
    trial = sleeping(start, 2, gpus_per_pod=2, files=FILES)
    done = trial.cluster.exec(0, [sys.executable, "/job/ask_client.py", steps], timeout=END_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_it_answers_as_a_real_cluster_does(start: Start) -> None:
    with FakeCluster(pods=2, gpus_per_pod=2) as cluster:
        cluster.will_end("fails", code={1: 3}, output={0: "of 0\n", 1: "of 1\n"})
        cluster.will_end("ranks", output="one rank\n" * 4)
        cluster.will_go_on("waits")
        pretended = ask_client.answers("usual")
    assert pretended == real(start, "usual")


@pytest.mark.faults
@pytest.mark.parametrize("workload", ["mpirun", "exec"])
def test_it_loses_a_pod_as_a_real_cluster_does(start: Start, workload: str) -> None:
    with FakeCluster(pods=2, gpus_per_pod=2) as cluster:
        cluster.will_end("loses", lost=[1])
        pretended = ask_client.answers(workload)
    assert pretended == real(start, workload)

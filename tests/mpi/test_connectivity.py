"""The connectivity test for real, on both versions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agent.launch import Launch
from agent.workloads.connectivity import ConnectivityRecord, neighbours
from agent.workloads.rank_record import PlannedRanks, RecordVerdict, read_record
from tests.mpi.conftest import CONNECTIVITY, ONE_VERSION, MakePods, Mpi, open_mpi_4, open_mpi_5
from tests.mpi.pods import End, Pods

SLOTS = 2
TOKENS = ["first", "second", "third"]


def connectivity(mpi: Mpi, pods: Pods, python: str = "", **changes: Any) -> Launch:
    """The launch of the rank program; each pod has its token in place."""
    for pod, token in zip(pods.pods, TOKENS, strict=False):
        pod.run(f"test -e /run/token || echo {token} > /run/token")
    given = {
        "A4_TOKEN_FILE": "/run/token",
        "A4_RECORD": str(pods.home / "record"),
        "A4_MPI_VERSION": str(mpi.version),
    }
    program = [python or mpi.python, CONNECTIVITY, "--sizes", "1024,65536", "--repeats", "5"]
    return mpi.launch(pods, program, SLOTS, env=pods.environment(**given), **changes)


def recorded(pods: Pods) -> ConnectivityRecord:
    path = pods.home / "record"
    return read_record(path.read_text() if path.exists() else "", ConnectivityRecord())


def judged(pods: Pods, tokens: list[str]) -> RecordVerdict:
    return recorded(pods).judge(PlannedRanks(SLOTS, pods.names, tokens))


def ended_well(pods: Pods, launch: Launch) -> bool:
    """Run it; an mpirun that hung after all its ranks had finished counts as the agent counts it."""
    end = pods.run(launch, lambda: recorded(pods).finished is not None)
    assert not end.stdout, end.output
    return end.stuck or end.status == 0


@ONE_VERSION
def test_all_is_right(mpi: Mpi, pods: Pods) -> None:
    assert ended_well(pods, connectivity(mpi, pods))
    assert judged(pods, TOKENS) == RecordVerdict(0, [])
    record = recorded(pods)
    assert sorted(pair.ranks for pair in record.pairs) == neighbours(3, SLOTS)
    assert all(pair.latency_us > 0 and pair.bandwidth_gb_s > 0 for pair in record.pairs)
    assert len(record.table(PlannedRanks(SLOTS, pods.names)).splitlines()) == 4


@ONE_VERSION
def test_the_order_of_the_plan_is_kept(mpi: Mpi, pods: Pods) -> None:
    assert ended_well(pods, connectivity(mpi, pods, order=[0, 2, 1]))
    assert judged(pods, [TOKENS[0], TOKENS[2], TOKENS[1]]).code == 0
    wrong = judged(pods, TOKENS)
    assert wrong.code == 65
    assert len(wrong.reasons) == 4
    assert wrong.reasons[0] == ("rank 2 runs on pod job-workload-0-2, the plan puts it on pod job-workload-0-1")


@ONE_VERSION
def test_one_pod(mpi: Mpi, pods: Pods) -> None:
    assert ended_well(pods, connectivity(mpi, pods, hostfile=None, ranks=SLOTS))
    assert recorded(pods).judge(PlannedRanks(SLOTS, pods.names[:1], TOKENS[:1])).code == 0
    assert [pair.ranks for pair in recorded(pods).pairs] == [(0, 1)]


@ONE_VERSION
def test_a_pod_without_a_token_is_named(mpi: Mpi, pods: Pods) -> None:
    pods.pods[1].run("mkdir /run/token")
    assert ended_well(pods, connectivity(mpi, pods))
    verdict = judged(pods, TOKENS)
    assert verdict.code == 65
    assert "rank 2 could not read the token of its pod on node node-1" in verdict.reasons[0]


@contextmanager
def held(mpi: Mpi, pods: Pods) -> Iterator[Callable[[], End]]:
    """A test whose ranks on pod 1 wait for the pod's token; yields what waits for its end."""
    pods.pods[1].run("mkfifo /run/token")
    with pods.started(connectivity(mpi, pods)) as process:
        # Opening the FIFO waits for a rank that reads it. The open end is held by a process of the pod.
        pods.pods[1].run("exec 3>/run/token; sleep 600 >/dev/null 2>&1 &")
        # Rank 0 may still be on its way to the first line of its record.
        pods.pods[0].run(f"until grep -qs start {pods.home}/record; do sleep 0.02; done")
        yield lambda: pods.finish(process)


def kill_daemon(pods: Pods) -> None:
    pods.pods[1].run("pkill -KILL '^(orted|prted)$'")


def end_daemon(pods: Pods) -> None:
    pods.pods[1].run("pkill -TERM '^(orted|prted)$'")


def kill_pod(pods: Pods) -> None:
    pods.pods[1].process.kill()


@pytest.mark.parametrize(
    "loss", [kill_pod, *(pytest.param(loss, marks=pytest.mark.faults) for loss in (kill_daemon, end_daemon))]
)
def test_a_lost_pod_or_daemon_is_never_success(mpi: Mpi, make_pods: MakePods, loss: Callable[[Pods], None]) -> None:
    pods = make_pods(3)
    with held(mpi, pods) as wait:
        loss(pods)
        end = wait()
    assert judged(pods, TOKENS).code is None
    assert recorded(pods).launched == 6
    assert mpi.code(end, started=True) == 75


def test_a_killed_rank_is_never_success(mpi: Mpi, pods: Pods) -> None:
    with held(mpi, pods) as wait:
        pods.pods[1].run("pkill -KILL -o -f connectivity.py")
        end = wait()
    assert judged(pods, TOKENS).code is None
    # Open MPI 5 may tell the end of a rank that lost its connection to the killed one instead.
    codes = {137} if mpi.version.major == 4 else {137, 14}
    assert mpi.code(end, started=True) in codes


def test_a_libmpi_of_another_version_is_found(pods: Pods) -> None:
    """mpi4py beside the wheel of Open MPI 5 loads that one's libmpi, even under mpirun 4."""
    four, five = open_mpi_4(), open_mpi_5()
    pods.run(connectivity(four, pods, python=five.python))
    verdict = judged(pods, TOKENS)
    assert verdict.code == 65
    assert f"mpirun is Open MPI {four.version}, but ranks 0-5 use libmpi of {five.version}" in verdict.reasons[0]


@ONE_VERSION
def test_a_python_without_mpi4py_is_66(mpi: Mpi, pods: Pods) -> None:
    launch = connectivity(mpi, pods)
    at = list(launch.argv).index(CONNECTIVITY)
    without_packages = [*launch.argv[:at], "-S", *launch.argv[at:]]
    end = pods.run(Launch(without_packages, launch.env, launch.cwd))
    assert mpi.code(end) == 66
    assert "has no working mpi4py" in end.stderr


def test_the_rank_program_finds_what_lies_beside_it() -> None:
    """Some images set PYTHONSAFEPATH."""
    argv, env = [sys.executable, CONNECTIVITY, "--help"], {**os.environ, "PYTHONSAFEPATH": "1"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "usage: connectivity.py" in done.stdout) == (0, True), done.stderr

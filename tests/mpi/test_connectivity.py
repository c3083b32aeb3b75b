"""The connectivity test for real."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from agent.paths import shipped
from agent.workloads.base import Judgement
from agent.workloads.connectivity import neighbours
from tests.mpi.conftest import WITH_4, WITH_5, MakePods, Mpi, open_mpi_4, open_mpi_5
from tests.mpi.pods import Pods
from tests.mpi.runs import SLOTS, Run

FEW = ("--sizes", "1024,65536", "--repeats", "5")


@WITH_4
@pytest.mark.parametrize("order", [[0, 2, 1], [0]])
def test_all_is_right(mpi: Mpi, pods: Pods, order: list[int]) -> None:
    """Also that each rank is where the plan has it."""
    run = Run(mpi, pods, FEW, "connectivity", order=order)
    judgement = run.whole()
    assert judgement.end.code == 0, judgement
    assert run.end and not run.end.stdout
    pairs = judgement.measurements.record["pairs"]
    assert sorted(tuple(pair["ranks"]) for pair in pairs) == neighbours(len(order), SLOTS)
    assert all(pair["latency_us"] > 0 and pair["bandwidth_gb_s"] > 0 for pair in pairs)


@WITH_4
def test_a_pod_without_a_token_is_named(mpi: Mpi, pods: Pods) -> None:
    run = Run(mpi, pods, FEW, "connectivity")
    pods.pods[1].run("rm /run/token; mkdir /run/token")
    judgement = run.whole()
    assert judgement.end.code == 65
    assert "rank 2 could not read the token of its pod on node node-1" in judgement.measurements.reasons[0]


@contextmanager
def held(mpi: Mpi, pods: Pods) -> Iterator[Callable[[], Judgement]]:
    """A test whose ranks on pod 1 wait for the pod's token; yields what waits for its end."""
    run = Run(mpi, pods, FEW, "connectivity")
    pods.pods[1].run("rm /run/token; mkfifo /run/token")
    with run.started() as process:
        # Opening the FIFO waits for a rank that reads it. The open end is held by a process of the pod.
        pods.pods[1].run("exec 3>/run/token; sleep 600 >/dev/null 2>&1 &")
        # Rank 0 may still be on its way to the first line of its record.
        pods.pods[0].run(f"until grep -qs start {run.context.record}; do sleep 0.02; done")
        yield lambda: run.finish(process)


LOSSES: dict[str, Callable[[Pods], object]] = {
    "pod killed": lambda pods: pods.pods[1].process.kill(),
    "daemon killed": lambda pods: pods.pods[1].run("pkill -KILL '^(orted|prted)$'"),
    "daemon ended": lambda pods: pods.pods[1].run("pkill -TERM '^(orted|prted)$'"),
}
FIRST, *OTHERS = LOSSES


@WITH_5
@pytest.mark.parametrize("loss", [FIRST, *(pytest.param(loss, marks=pytest.mark.faults) for loss in OTHERS)])
def test_a_lost_pod_or_daemon_is_never_success(mpi: Mpi, make_pods: MakePods, loss: str) -> None:
    pods = make_pods(3)
    with held(mpi, pods) as wait:
        LOSSES[loss](pods)
        judgement = wait()
    assert (judgement.end.code, judgement.measurements.record["ranks"]) == (75, 6), judgement


@WITH_5
def test_a_killed_rank_is_never_success(mpi: Mpi, pods: Pods) -> None:
    with held(mpi, pods) as wait:
        pods.pods[1].run("pkill -KILL -o -f connectivity.py")
        end = wait().end
    # Open MPI 5 may tell the end of a rank that lost its connection to the killed one instead.
    assert end.code in ({137} if mpi.version.major == 4 else {137, 14}), end


def test_a_libmpi_of_another_version_is_found(pods: Pods) -> None:
    """mpi4py beside the wheel of Open MPI 5 loads that one's libmpi, even under mpirun 4."""
    four, five = open_mpi_4(), open_mpi_5()
    judgement = Run(four, pods, FEW, "connectivity", given={"python": five.python}).whole()
    assert judgement.end.code == 65
    says = f"mpirun is Open MPI {four.version}, but ranks 0-5 use libmpi of {five.version}"
    assert says in judgement.measurements.reasons[0]


@WITH_4
def test_a_python_without_mpi4py_is_66(mpi: Mpi, pods: Pods) -> None:
    run = Run(mpi, pods, FEW, "connectivity")
    launch = run.launch
    end = run.whole(launch._replace(argv=["-IS" if word == "-I" else word for word in launch.argv])).end
    assert end.code == 66
    assert run.end and "has no working mpi4py" in run.end.stderr


def test_the_rank_program_finds_what_lies_beside_it() -> None:
    """Some images set PYTHONSAFEPATH."""
    argv = [sys.executable, shipped("entrypoints", "connectivity.py"), "--help"]
    done = subprocess.run(argv, env={**os.environ, "PYTHONSAFEPATH": "1"}, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "usage: connectivity.py" in done.stdout) == (0, True), done.stderr

"""Why a run over NCCL stands still: two real ranks, each on a GPU and a pod of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import wire
from agent.clinic.interface import diagnose
from agent.clinic.why.records import Collected
from agent.decide.diagnosis import Diagnosis
from tests.clinic.cluster.test_why import blamed, why
from tests.cluster.conftest import RUN_DIR, Trial
from tests.cluster.work import following
from tests.gpu.conftest import RUN_SECONDS, Cluster, agent
from tests.gpu.test_nccl import BUILD, ENV

FILES = {"/workload/hang.py": Path(__file__).with_name("programs").joinpath("hang.py").read_bytes()}
CULPRIT = 1
KEPT = os.environ.get("A4_TEST_KEEP_RESULTS", "")
"""Directory in which what pods answered stays, for tests/clinic/collected."""
BUSY_RANK = "grep -lx all_reduce_perf /proc/[0-9]*/comm | cut -d / -f 3"
"""Process of a rank of nccl-tests in this pod."""
BUSY_TICKS = 300
"""It computes when it has used the processor for so long, in 1/100 s: to start takes less."""


@pytest.fixture
def trial(cluster: Cluster) -> Iterator[Trial]:
    yield cluster(2, 1, files=FILES, env={**ENV, "A4_HANG_SECONDS": "0"})


def collected(trial: Trial, run: str, name: str) -> Collected:
    """What the pods say of it; the run is ended."""
    try:
        found = why(trial, run, pod=1)
    finally:
        agent(trial, 0, "cancel", run)
    if KEPT:
        (Path(KEPT) / f"why-{name}.json").write_text(json.dumps(wire.to_json(found), indent=1))
    return found


def diagnosed(trial: Trial, case: str, name: str = "") -> Diagnosis:
    with following(trial, 1, "torchrun", "--", "/workload/hang.py", case) as (client, run):
        try:
            trial.until(0, f"test -e /mnt/{case}-0 && test -e /mnt/{case}-1")
            found = collected(trial, run, name or case)
        finally:
            client.wait(RUN_SECONDS)
    return diagnose(found)


def test_each_way_to_stand_still(trial: Trial) -> None:
    """One cluster for all: each run loads torch and CUDA anew."""
    late = diagnosed(trial, "late")
    assert (late.status, blamed(late)) == ("hangs", {CULPRIT: "behind"}), late
    assert "load_batch" in late.sentence and "all_reduce #21, which 1 rank waits in" in late.sentence
    assert "; no operation for " in late.sentence, "NCCL's recorder tells the numbers without its entries"

    stopped = diagnosed(trial, "stopped")
    assert (stopped.status, blamed(stopped)) == ("hangs", {CULPRIT: "stopped"}), stopped

    left_out = diagnosed(trial, "left-out")
    assert (left_out.status, blamed(left_out)) == ("hangs", {CULPRIT: "behind"}), left_out

    received = diagnosed(trial, "receive")
    assert (received.status, [one.rank for one in received.culprits]) == ("hangs", [CULPRIT]), received

    kernel = diagnosed(trial, "kernel")
    assert (kernel.status, kernel.culprits) == ("unclear", ()), kernel
    assert "A4_WHY_TIMING" in kernel.sentence


def test_torchs_timing_shows_whose_kernel_never_ends(cluster: Cluster) -> None:
    """Not in torch 2.15's own backend, nccl2: it does not tell what has begun."""
    trial = cluster(2, 1, files=FILES, env={**ENV, "A4_WHY_TIMING": "true", "TORCH_DIST_USE_NCCL2": "0"})
    found = diagnosed(trial, "kernel", "kernel-timed")
    assert (found.status, [one.rank for one in found.culprits]) == ("hangs", [CULPRIT]), found


def test_ranks_that_the_watchdog_ends_leave_who_held_them_up(trial: Trial) -> None:
    done = agent(trial, 0, "torchrun", "--", "/workload/hang.py", "watchdog")
    assert done.returncode, done
    state = json.loads(trial.cluster.read(0, f"{RUN_DIR}/state.json"))
    result = json.loads(trial.cluster.read(0, f"{RUN_DIR}/runs/{state['runs'][-1]['id']}/result.json"))
    if KEPT:
        (Path(KEPT) / "why-watchdog-result.json").write_text(json.dumps(result, indent=1))
        (Path(KEPT) / "why-watchdog.txt").write_text(done.stderr)
    found = result["diagnosis"]
    assert found["trigger"] == "watchdog", found
    # Until torch 2.14 all ranks leave dumps; in 2.15 those that waited in vain, and only these are ended.
    named = [one["rank"] for one in found["culprits"]]
    assert named == [CULPRIT] or f"perhaps for rank {CULPRIT}, of which too little is known" in found["sentence"], found


@pytest.mark.skipif(not BUILD, reason="A4_NCCL_TESTS_DIR names no build of nccl-tests with MPI=1")
def test_a_stopped_rank_of_nccl_tests_is_named(trial: Trial) -> None:
    words = ("run", "nccl", "--", "--tests", "all_reduce", "-b", "64M", "-e", "64M", "-n", "100000000")
    with following(trial, 0, *words) as (client, run):
        try:
            trial.until(1, f"pid=$({BUSY_RANK}) && test $(cut -d ' ' -f 14 /proc/$pid/stat) -gt {BUSY_TICKS}")
            stopped = trial.cluster.exec(1, ["bash", "-c", f"kill -STOP $({BUSY_RANK})"])
            assert stopped.returncode == 0, stopped
            found = diagnose(collected(trial, run, "nccl-tests"))
        finally:
            client.wait(RUN_SECONDS)
    assert (found.status, blamed(found)) == ("hangs", {CULPRIT: "stopped"}), found

"""Why a run stands still: real ranks that hang, each in its own way, and the sentence that names the one to blame."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import wire
from agent.decide.diagnosis import Diagnosis
from agent.health.why.deciding import diagnose
from agent.health.why.records import Collected
from tests.cluster.conftest import END_SECONDS, Trial, starting
from tests.cluster.work import agent, following, sleeping

CHECKOUT = Path(__file__).parents[2]
TORCH = CHECKOUT / ".venv-torch" / "bin" / "python"
LIBRARIES = f"/usr/lib/{os.uname().machine}-linux-gnu"
FILES = {"/workload/hang.py": Path(__file__).with_name("programs").joinpath("hang.py").read_bytes()}
RANKS, CULPRIT = 8, 5
ASK = """
import json, sys
from agent import wire
from agent.client import Client
with Client() as client:
    print(json.dumps(wire.to_json(client.why(sys.argv[1] or None))))
"""


def why(trial: Trial, run: str = "", pod: int = 3) -> Collected:
    asked = trial.cluster.exec(pod, [sys.executable, "-c", ASK, run], timeout=120)
    assert asked.returncode == 0, asked
    return wire.from_json(Collected, json.loads(asked.stdout))


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    with starting() as start:
        env = {"A4_PYTHON": str(TORCH), "OMP_NUM_THREADS": "1"}
        yield sleeping(start, 4, gpus_per_pod=2, files=FILES, env=env)


def diagnosed(trial: Trial, case: str, *command: str) -> Diagnosis:
    """What is said of a run that has come to its hang; the run is ended."""
    ranks = 2 * trial.cluster.spec.pods
    command = command or ("torchrun", "--", "/workload/hang.py", case)
    with following(trial, 1, *command) as (client, run):
        try:
            trial.until(0, " && ".join(f"test -e /mnt/{case}-{rank}" for rank in range(ranks)))
            collected = why(trial, run)
        finally:
            agent(trial, 0, "cancel", run)
            client.wait(END_SECONDS)
    return diagnose(collected)


def blamed(found: Diagnosis) -> dict[int | None, str]:
    """Fault by rank."""
    return {one.rank: one.fault for one in found.culprits}


def test_a_rank_that_sleeps(trial: Trial) -> None:
    found = diagnosed(trial, "sleeps")
    assert (found.status, blamed(found)) == ("hangs", {CULPRIT: "behind"})
    assert "sleep_in_python" in found.sentence and "all_reduce #4, which 7 ranks wait in" in found.sentence


def test_ranks_of_mpi_and_one_that_does_not_enter_the_barrier(trial: Trial) -> None:
    found = diagnosed(trial, "mpi", "mpirun", "--", sys.executable, "/workload/hang.py", "mpi")
    assert (found.status, [one.rank for one in found.culprits]) == ("hangs", [CULPRIT])
    assert "sleep_in_python" in found.sentence


@pytest.mark.faults
def test_a_program_of_mpi_without_python_shows_its_system_call(trial: Trial, tmp_path: Path) -> None:
    """It is built with the header of Open MPI 5 and the library of 4.1, whose interfaces are the same."""
    source = Path(__file__).with_name("programs") / "barrier.cpp"
    program = tmp_path / "barrier"
    parts = [f"-I{CHECKOUT}/.venv-ompi5/include", str(source), f"-L{LIBRARIES}", "-l:libmpi.so.40"]
    subprocess.run(["g++", "-o", str(program), *parts], check=True, timeout=END_SECONDS)
    for index in range(trial.cluster.spec.pods):
        store = "cat >/workload/barrier && chmod +x /workload/barrier"
        trial.cluster.exec(index, ["bash", "-c", store], input=program.read_bytes())
    found = diagnosed(trial, "barrier", "mpirun", "--", "/workload/barrier")
    assert (found.status, found.culprits) == ("unclear", ()), found
    assert f"rank {CULPRIT} (pod " in found.sentence and "is elsewhere than 7 other ranks" in found.sentence
    assert "it is in the system call pause" in found.sentence


@pytest.mark.faults
@pytest.mark.parametrize(
    ("case", "fault", "words"),
    [
        ("stopped", "stopped", "stopped"),
        ("gil", "behind", "GIL"),
        ("fifo", "behind", "/tmp/data"),
        ("loader", "behind", "its worker"),
        ("dead", "dead", "7 ranks wait for it"),
        ("operation", "other operation", "broadcast"),
        ("left-out", "other operation", "barrier"),
    ],
)
def test_one_rank_is_blamed(trial: Trial, case: str, fault: str, words: str) -> None:
    found = diagnosed(trial, case)
    assert (found.status, blamed(found)) == ("hangs", {CULPRIT: fault}), found
    assert words in found.sentence


@pytest.mark.faults
def test_a_pipeline_leads_to_the_one_at_its_end(trial: Trial) -> None:
    found = diagnosed(trial, "pipeline")
    assert (found.status, [one.rank for one in found.culprits]) == ("hangs", [0]), found


@pytest.mark.faults
def test_two_groups_in_another_order_blame_nobody(trial: Trial) -> None:
    found = diagnosed(trial, "order")
    assert (found.status, found.culprits) == ("circle", ()), found


@pytest.mark.faults
def test_two_hangs_at_once_are_both_named(trial: Trial) -> None:
    found = diagnosed(trial, "two")
    assert sorted(one.rank or 0 for one in found.culprits) == [2, 6], found


@pytest.mark.faults
def test_a_slow_run_does_not_hang(trial: Trial) -> None:
    found = diagnosed(trial, "healthy")
    assert (found.status, found.culprits) == ("moves", ()), found


@pytest.mark.long
def test_sixteen_pods_with_real_ranks() -> None:
    with starting() as start:
        env = {"A4_PYTHON": str(TORCH), "OMP_NUM_THREADS": "1"}
        found = diagnosed(sleeping(start, 16, gpus_per_pod=2, files=FILES, env=env), "sleeps")
    assert (found.status, blamed(found)) == ("hangs", {CULPRIT: "behind"}), found
    assert "all_reduce #4, which 31 ranks wait in" in found.sentence

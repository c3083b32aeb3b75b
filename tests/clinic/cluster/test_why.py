"""Why a run stands still: a real rank holds the others up, and is named. All other ways are in test_why_hangs.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent import wire
from agent.clinic.interface import diagnose
from agent.clinic.why.records import Collected
from agent.decide.diagnosis import Diagnosis
from tests.cluster.conftest import END_SECONDS, Start, Trial, starting
from tests.cluster.work import agent, following, sleeping
from tests.torch_environment import TORCH_PYTHON, is_served, torch_release

CHECKOUT = Path(__file__).parents[3]
LIBRARIES = f"/usr/lib/{os.uname().machine}-linux-gnu"
FILES = {"/workload/hang.py": Path(__file__).with_name("programs").joinpath("hang.py").read_bytes()}
CULPRIT = 3
ASK = """
import json, sys
from agent import wire
from agent.client import Client
with Client() as client:
    print(json.dumps(wire.to_json(client.why_records(sys.argv[1] or None))))
"""


def why(trial: Trial, run: str = "", pod: int = 0) -> Collected:
    asked = trial.cluster.exec(pod, [sys.executable, "-c", ASK, run], timeout=120)
    assert asked.returncode == 0, asked
    return wire.from_json(Collected, json.loads(asked.stdout))


def hanging_cluster(start: Start, pods: int, files: Mapping[str, bytes] = FILES) -> Trial:
    env = {"A4_PYTHON": str(TORCH_PYTHON), "OMP_NUM_THREADS": "1", "A4_HANG_SECONDS": "0"}
    return sleeping(start, pods, gpus_per_pod=2, files=files, env=env)


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    with starting() as start:
        yield hanging_cluster(start, 2)


@contextmanager
def hanging(trial: Trial, case: str, *command: str) -> Iterator[str]:
    """The id of a run that has come to its hang; it is ended."""
    ranks = 2 * trial.cluster.spec.pods
    command = command or ("torchrun", "--", "/workload/hang.py", case)
    with following(trial, 1, *command) as (client, run):
        try:
            trial.until(0, " && ".join(f"test -e /mnt/{case}-{rank}" for rank in range(ranks)))
            yield run
        finally:
            agent(trial, 0, "cancel", run)
            client.wait(END_SECONDS)


def diagnosed(trial: Trial, case: str, *command: str) -> Diagnosis:
    with hanging(trial, case, *command) as run:
        return diagnose(why(trial, run))


def blamed(found: Diagnosis) -> dict[int | None, str]:
    """Fault by rank."""
    return {one.rank: one.fault for one in found.culprits}


def test_a_rank_that_sleeps(trial: Trial) -> None:
    """Asked through the library and by the verb, which is also asked about runs that do not hang. With an old torch
    stacks alone tell, and no number."""
    asks = trial.cluster.popen
    with (
        hanging(trial, "sleeps") as run,
        asks(0, ["a4-agent", "why"]) as verb,
        asks(1, ["a4-agent", "why", run, "--json"]) as for_programs,
    ):
        found = diagnose(why(trial, run))
        said, told = (each.communicate(timeout=END_SECONDS)[0] for each in (verb, for_programs))
    assert (found.status, blamed(found)) == ("hangs", {CULPRIT: "behind"})
    operation = "all_reduce #4" if is_served() else "all_reduce"
    assert "sleep_in_python" in found.sentence and f"{operation}, which 3 ranks wait in" in found.sentence
    recorder = [(one.state, one.text) for one in found.sources if one.name == "recorder"]
    old = "ranks 0-3: torch {}.{} has no server in ranks that could be asked: the first is torch 2.10"
    assert recorder == [("found", "4 of 4 ranks") if is_served() else ("unavailable", old.format(*torch_release()))]
    assert (verb.code, f"rank {CULPRIT} (pod " in said) == (0, True), said
    assert all(len(line) <= 80 for line in said.splitlines())
    answer = json.loads(told)
    assert (answer["run"], answer["over"], answer["diagnosis"]["status"]) == (run, False, "hangs")
    over = trial.cluster.exec(1, ["a4-agent", "why", run], timeout=END_SECONDS)
    assert (over.returncode, over.stdout) == (0, f"{run} is over, and nothing was seen to hang in it\n")


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
    assert f"rank {CULPRIT} (pod " in found.sentence and "is elsewhere than 3 other ranks" in found.sentence
    assert "it is in the system call pause" in found.sentence


@pytest.mark.long
def test_sixteen_pods_with_real_ranks() -> None:
    with starting() as start:
        found = diagnosed(hanging_cluster(start, 16), "sleeps")
    assert (found.status, blamed(found)) == ("hangs", {CULPRIT: "behind"}), found
    assert "all_reduce #4, which 31 ranks wait in" in found.sentence

"""Runs that take too long or fall silent: they end on every pod with 124, and say what hung where."""

from __future__ import annotations

import json
import re
import sys

from tests.cluster.conftest import RUN_DIR, Start, Trial, all_codes
from tests.cluster.storage import log_name
from tests.cluster.work import agent, marked, sleeping, state
from tests.deadlines import short_deadline, talking, talking_until

RESULTS = "/mnt/results"
HERE = [f"/mnt/here-{rank}" for rank in range(4)]
"""Made by each process of HANG where it hangs."""
ALL_HERE = " -a -e ".join(HERE)
"""What is there when the silence begins: a rank that still starts would be found elsewhere."""
STALL = {"A4_STALL_TIMEOUT_SECONDS": short_deadline(5, after=HERE[1]), "A4_RESULTS_DIR": RESULTS}

HANG = """
import os, signal, sys

def stuck_in_the_data_loader():
    here()
    os.read(os.pipe()[0], 1)

def stopped_by_somebody():
    here()
    os.kill(os.getpid(), signal.SIGSTOP)

def here():
    open(f"/mnt/here-{rank}", "w").close()

def take_part(communicator):
    os.write(1, f"rank {rank} is at step 7\\n".encode())  # in one piece, unlike print under -u
    odd.get(rank, here)()
    communicator.Barrier() if communicator else os.read(os.pipe()[0], 1)

names = ("OMPI_COMM_WORLD_RANK", "RANK", "JOB_COMPLETION_INDEX")
rank = next(int(os.environ[name]) for name in names if name in os.environ)
how = sys.argv[1]
odd = {int(rank): globals()[what] for rank, what in (word.split("=") for word in sys.argv[2:])}
if how == "mpi":
    from mpi4py import MPI
take_part(MPI.COMM_WORLD if how == "mpi" else None)
"""
FILES = {
    "/workload/hang.py": HANG.encode(),
    "/usr/local/bin/mpirun": talking("/usr/bin/mpirun", ALL_HERE),
}
STUCK = "=stuck_in_the_data_loader"


def evidence(trial: Trial, index: int, run: str) -> str:
    """The same in the run's directory and among its results."""
    first = run.startswith("script-")
    kept = trial.cluster.read(index, f"{RUN_DIR}/runs/{run}/evidence.txt")
    stored = f"{RESULTS if first else f'{RESULTS}/runs/{run}'}/evidence/{log_name(index)}.txt"
    trial.until(0, f"test -e {stored}")
    assert trial.cluster.read(0, stored) == kept
    return kept


def end_everywhere(trial: Trial) -> dict[str, str]:
    """The newest run's end, the same on every pod; nothing of it is left on any."""
    pods = range(trial.cluster.spec.pods)
    newest = [state(trial, index)["runs"][-1] for index in pods]
    assert {run["code"] for run in newest} == {124}
    assert marked(trial, *pods) == {}
    return {name: str(newest[0][name]) for name in ("id", "what", "origin")}


def test_a_script_that_hangs(start: Start) -> None:
    talks = talking_until(" -a -e ".join(HERE[:2]))
    script = f"{talks}\nexec {sys.executable} /workload/hang.py alone 1{STUCK}"
    trial = sleeping(start, 2, arguments=("script",), script=script, files=FILES, env=STALL)
    end = end_everywhere(trial)
    assert (end["what"], end["origin"]) == ("script hit the limit of 5 s without a line of output", "agent")
    for index in range(2):
        said = trial.said(index)
        assert (said["code"], said["what"]) == (124, end["what"])
        assert re.search(r"pod 1: pid \d+ python3? /workload/hang.py .*: S stuck_in_the_data_loader ", said["why"])
        place = "stuck_in_the_data_loader" if index == 1 else "take_part"
        assert f"\n      {place} (hang.py:" in evidence(trial, index, end["id"])
    trial.cluster.terminate()
    all_codes(trial, 124)


def test_ranks_that_hang_and_are_stopped_while_others_wait_for_them_in_mpi(start: Start) -> None:
    trial = sleeping(start, 2, gpus_per_pod=2, files=FILES, env=STALL)
    program = (sys.executable, "/workload/hang.py", "mpi", "1=stopped_by_somebody", f"3{STUCK}")
    done = agent(trial, 1, "mpirun", "--", *program)
    assert done.returncode == 124, done
    pods = order_of_ranks(trial)
    assert re.search(rf"pod {pods[1]}: rank 1: pid \d+ python3? .*: T ", done.stderr), done
    assert re.search(rf"pod {pods[3]}: rank 3: pid \d+ python3? .*: S stuck_in_the_data_loader \(hang.py", done.stderr)
    found = expect_evidence(trial, end_everywhere(trial)["id"])
    assert "state T (stopped)" in found[1]
    assert "  stuck_in_the_data_loader (hang.py:" in found[3]
    assert "  take_part (hang.py:" in found[0]
    trial.cluster.terminate()
    all_codes(trial, 143)


def order_of_ranks(trial: Trial) -> list[int]:
    """Completion index of the pod of each rank."""
    peers = json.loads(trial.cluster.read(0, f"{RUN_DIR}/plan.json"))["peers"]
    return [peer["index"] for peer in peers for _ in range(trial.cluster.spec.gpus_per_pod)]


def expect_evidence(trial: Trial, run: str) -> dict[int, str]:
    """Each pod has what its own ranks said last, and where they were: returned by rank."""
    pods = order_of_ranks(trial)
    found: dict[int, str] = {}
    for index in set(pods):
        processes, _, last_words = evidence(trial, index, run).partition("last output of every rank")
        own = [str(rank) for rank, pod in enumerate(pods) if pod == index]
        blocks = [re.match(r"rank (\d+) \(", block) for block in processes.split("\n\n")]
        of_ranks = [block for block in blocks if block is not None]
        assert sorted({block[1] for block in of_ranks}) == own
        assert re.findall(r"rank (\d+) is at step 7", last_words) == own
        for block in reversed(of_ranks):  # the rank's program comes first
            found[int(block[1])] = block.string
    return found

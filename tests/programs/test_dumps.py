"""What torch leaves of ranks that its watchdog ends: pickles by torch itself, read when the ranks are gone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agent.clinic.interface import diagnose
from agent.clinic.sources.look import look
from agent.clinic.sources.question import Question
from agent.clinic.why.records import Collected, PodRecords
from agent.machine.api import RunMarks
from tests.programs.test_hook import HOOK
from tests.torch_environment import TORCH_PYTHON, is_served

DEADLINE_SECONDS = 300
"""Two ranks import torch, which takes minutes where many others compute."""
RANKS = 2
PROGRAM = """
import ctypes, json, os, signal, sys, time
import torch, torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json

rank, one = int(os.environ["RANK"]), torch.ones(2)
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=rank, world_size=2)
for _ in range(3):
    dist.all_reduce(one)

def completed():
    (status,) = json.loads(_dump_fr_trace_json(True, False))["pg_status"].values()
    return int(status["last_completed_collective"])

while completed() < 3:  # gloo's threads note it a little later
    time.sleep(0.01)

def leave_out():
    if rank == 0:
        return dist.all_reduce(one, async_op=True)

work = leave_out()
(getenv := ctypes.CDLL(None).getenv).restype = ctypes.c_char_p  # as torch reads it
path = getenv(b"TORCH_FR_DUMP_TEMP_FILE") or getenv(b"TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
with open(path + str(rank).encode(), "wb") as file:
    file.write(_dump_fr_trace(True, True, False).replace(b"gloo:", b"nccl:"))
os.kill(os.getpid(), signal.SIGKILL)  # as the watchdog's SIGABRT: no destructor runs
"""
"""The watchdog is NCCL's and needs GPUs. The recorder, and how it is pickled, is the same for gloo; the names of its
operations, of the same length, are exchanged in the pickle."""


def test_the_dumps_of_torch_say_who_left_an_operation_out(tmp_path: Path) -> None:
    if not is_served():
        pytest.skip("gloo of this torch records nothing")
    directory = tmp_path / "why"
    directory.mkdir()
    base = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": HOOK,
        "A4_WHY_DIR": str(directory),
        "OMP_NUM_THREADS": "1",
    }
    ranks = [
        subprocess.Popen(
            [str(TORCH_PYTHON), "-c", PROGRAM, str(tmp_path)],
            env={**base, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    try:
        ends = [(rank.communicate(timeout=DEADLINE_SECONDS)[1], rank.returncode) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    assert [code for _, code in ends] == [-9, -9], ends
    seen = look(Question(PodRecords(0, "p0", ""), RunMarks("torchrun-of-this-test"), why_dir=str(directory))).records
    found = diagnose(Collected("r", pods=(seen,), ranks=RANKS, trigger="watchdog"))
    assert (found.status, [(one.rank, one.fault) for one in found.culprits]) == ("hangs", [(1, "behind")]), found
    assert "rank 1 (pod 0, pid " in found.sentence
    assert "has not entered all_reduce #4, which 1 rank waits in" in found.sentence
    assert [(one.name, one.text) for one in found.sources if one.state == "found"] == [("dump", "2 of 2 ranks")]

"""A look at a rank that is ending never ends it: what it is asked needs no GIL, and nothing stops it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent.clinic.sources.question import Question
from agent.clinic.sources.recorder import RecorderSource
from agent.clinic.sources.source import Look
from agent.clinic.sources.stacks import StackSource
from agent.clinic.sources.torch_server import entered_operations
from agent.clinic.why.records import PodRecords
from agent.machine.api import RunMarks
from agent.machine.evidence_text import ProcessSeen
from tests.programs.test_hook import HOOK
from tests.torch_environment import TORCH_PYTHON, is_served

ENDS = """
import sys, torch
import torch.distributed as dist
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/meeting", rank=0, world_size=1)
group = dist.new_group([0])
for _ in range(200):
    dist.all_reduce(torch.ones(1 << 16), group=group)
dist.barrier(group=group)
print("ends", flush=True)
"""
"""Without the barrier, whose work holds no object of Python, gloo's thread may still let go of the last tensor while
Python ends, and torch aborts the process by itself (pytorch/pytorch#190489)."""
NO_PY_SPY = "/bin/false"


@pytest.mark.faults
@pytest.mark.parametrize("spy", [shutil.which("py-spy", path=os.path.dirname(sys.executable)), NO_PY_SPY])
def test_a_rank_that_is_asked_until_it_has_ended_ends_well(spy: str, tmp_path: Path) -> None:
    if not is_served():
        pytest.skip("this torch has no server in ranks that could be asked")
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": HOOK,
        "A4_WHY_DIR": str(tmp_path),
        "RANK": "0",
        "LOCAL_RANK": "0",
    }
    question = Question(PodRecords(0, "pod-0", ""), RunMarks("run-1"), why_dir=str(tmp_path), seconds=0.3)
    looks, entered = 0, set[int]()
    for _ in range(3):
        argv = [str(TORCH_PYTHON), "-c", ENDS, str(tmp_path)]
        with subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as rank:
            path = f"{tmp_path}/{rank.pid}.sock"
            seen = ProcessSeen(rank.pid, os.getpid(), "python", "R", 1.0, 1.0, rank=0, is_python=True)

            def look(seen: ProcessSeen = seen, path: str = path, rank: subprocess.Popen[str] = rank) -> None:
                nonlocal looks
                while rank.poll() is None:
                    if os.path.exists(path):
                        now = Look(question)
                        now.sockets = {seen.pid: path}
                        RecorderSource(now).ask(seen.pid, path)
                        StackSource(now).take(spy, seen)
                        entered.update(entered_operations(str(tmp_path), 0.3).values())
                        looks += 1

            several = [threading.Thread(target=look) for _ in range(2)]
            for thread in several:
                thread.start()
            out, err = rank.communicate(timeout=120)
            for thread in several:
                thread.join()
        (tmp_path / "meeting").unlink(missing_ok=True)
        assert (rank.returncode, out) == (0, "ends\n"), err
    assert looks > 3 and max(entered) > 1

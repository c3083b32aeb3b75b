"""The `torchrun` workload for real: two pods whose host names are not their own, gloo between them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from agent.workloads.base import FailedPart, Judgement, Outcome, RunContext
from agent.workloads.torchrun import Torchrun
from tests.mpi.conftest import open_mpi_4
from tests.mpi.pods import End, Pods
from tests.mpi.runs import Run
from tests.torch_environment import TORCH_PYTHON

ENV = {"OMP_NUM_THREADS": "1", "WORLD_SIZE": "16", "RANK": "5"}
PROGRAM = """
import os, sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()} on {os.uname().nodename}: {total.item():.0f}")
dist.barrier()
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # threads of gloo that let go of a tensor while Python ends abort the process (pytorch/pytorch#179291)
"""


def contexts(pods: Pods, count: int, python: str = "") -> list[RunContext]:
    """What the first so many pods know of one run."""
    program = pods.home / "train.py"
    program.write_text(PROGRAM)
    given = {"workload_python": python or str(TORCH_PYTHON)}
    wish: dict[str, Any] = {"order": range(count), "env": ENV, "per_node": 1}
    one = Run(open_mpi_4(), pods, [str(program)], "torchrun", given=given, **wish).context
    return [replace(one, index=index) for index in range(count)]


def run(pods: Pods, some: list[RunContext]) -> tuple[list[End], Judgement]:
    """Start it on all pods, and wait for its end on all."""
    with ExitStack() as stack:
        launches = [Torchrun().launch(context) for context in some]
        processes = [stack.enter_context(pods.started(launch, index)) for index, launch in enumerate(launches)]
        ends = [pods.finish(process) for process in processes]
    statuses, failures = {index: end.status for index, end in enumerate(ends)}, {0: FailedPart(ends[0].output)}
    outcome = Outcome(ends[0].status, statuses=statuses, first=0 if ends[0].status else None, failures=failures)
    return ends, Torchrun().judge(some[0], outcome)


@pytest.mark.faults
def test_all_reduce_over_two_pods(pods: Pods) -> None:
    some = [replace(context, keep_ranks=True) for context in contexts(pods, 2)]
    ends, judgement = run(pods, some)
    assert judgement.end.code == 0, ends
    for rank in (0, 1):
        said = f"rank {rank} of 2 on node-{rank}: 3\n"
        assert ends[rank].stdout == said
        assert said in pods.pods[rank].path(f"{some[rank].ranks_output}/{rank}").read_text(), "beside what torch says"


def test_a_busy_port_is_named(pods: Pods) -> None:
    """The lead's agent looks before the start; this is for who takes the port after that."""
    some = contexts(pods, 1)
    port = some[0].master_port
    busy = f"python3 -m http.server {port} >/dev/null 2>&1 & until ss -Htln | grep -q {port}; do sleep 0.1; done"
    pods.pods[0].run(busy)
    assert Torchrun().launch(some[0]).port == port
    _, judgement = run(pods, some)
    assert judgement.end.code == 71 and f"MASTER_PORT {port}" in judgement.end.what, judgement


def test_a_python_without_torch_is_66(pods: Pods) -> None:
    _, judgement = run(pods, contexts(pods, 1, "/usr/bin/python3"))
    assert judgement.end.code == 66 and "/usr/bin/python3 has no torch" in judgement.end.what, judgement

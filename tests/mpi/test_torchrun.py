"""The `torchrun` workload for real: two pods whose host names are not their own, gloo between them."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from agent.decide.plan import Plan, PlannedPeer
from agent.decide.runspec import RunSpec
from agent.workloads.base import FailedPart, Judgement, Outcome, RunContext
from agent.workloads.torchrun import Torchrun
from tests.mpi.conftest import ROOT
from tests.mpi.pods import End, Pods

# Read when the tests are collected: later, no variable of the agent is left in the environment.
TORCH = Path(os.environ.get("A4_TEST_TORCH", ROOT / ".venv-torch"))
PORT = 29400
PROGRAM = """
import os, sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()} on {os.uname().nodename}: {total.item():.0f}")
if dist.get_rank() == int(sys.argv[1]):
    sys.stdout.flush()
    os._exit(7)  # not through the destructors of a process group whose other side still waits
dist.barrier()
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # threads of gloo that let go of a tensor while Python ends abort the process (pytorch/pytorch#179291)
"""


@pytest.fixture
def python() -> str:
    path = TORCH / "bin" / "python"
    if not path.exists():
        why = f"no Python with torch at {path}: make setup, or name an environment that has it by A4_TEST_TORCH"
        pytest.fail(why, pytrace=False)
    return str(path)


def contexts(pods: Pods, python: str, count: int, *args: str) -> list[RunContext]:
    """What the first so many pods know of one run."""
    program = pods.home / "train.py"
    program.write_text(PROGRAM)
    peers = tuple(PlannedPeer(i, pods.names[i], pods.addresses[i], pods.pods[i].node) for i in range(count))
    one = RunContext(
        run_id="torchrun-test",
        spec=RunSpec("torchrun", (str(program), *args), per_node=1),
        plan=Plan("epoch", 2, peers),
        index=0,
        environ={**pods.environment(), "OMP_NUM_THREADS": "1", "WORLD_SIZE": "16", "RANK": "5"},
        master_port=PORT,
        run_dir="/run",
        token_file="/run/token",
        ssh_config="",
        interface="eth0",
        python=sys.executable,
        workload_python=python,
        cores=1,
    )
    return [replace(one, index=index) for index in range(count)]


def run(pods: Pods, some: list[RunContext], first: int = 0) -> tuple[End, Judgement]:
    """Start it on all pods, wait for its end on pod `first` and, if that is 0, on all."""
    with ExitStack() as stack:
        launches = [Torchrun().launch(context) for context in some]
        processes = [
            stack.enter_context(pods.started(launch, context.index))
            for launch, context in zip(launches, some, strict=True)
        ]
        ends = {first: pods.finish(processes[first])}
        if not ends[first].status:
            ends |= {i: pods.finish(process) for i, process in enumerate(processes) if i != first}
    statuses = {index: end.status for index, end in ends.items()}
    one = ends[first]
    outcome = Outcome(
        one.status,
        statuses=statuses,
        first=first if one.status else None,
        failures={first: FailedPart(one.output, pods.pods[first].run(f"cat {some[first].torch_error} || true"))},
    )
    whole = End(one.status, "".join(end.stdout for end in ends.values()), "".join(end.stderr for end in ends.values()))
    return whole, Torchrun().judge(some[0], outcome)


@pytest.mark.faults
def test_all_reduce_over_two_pods(pods: Pods, python: str) -> None:
    some = [replace(context, keep_ranks=True) for context in contexts(pods, python, 2, "-1")]
    end, judgement = run(pods, some)
    assert judgement.end.code == 0, end
    assert sorted(end.stdout.splitlines()) == ["rank 0 of 2 on node-0: 3", "rank 1 of 2 on node-1: 3"]
    for rank in (0, 1):
        assert f"rank {rank} of 2" in pods.pods[rank].run(f"cat {some[rank].ranks_output}/{rank}")


@pytest.mark.faults
def test_a_process_that_fails_is_named(pods: Pods, python: str) -> None:
    _, judgement = run(pods, contexts(pods, python, 2, "1"), first=1)
    end = judgement.end
    assert (end.code, end.origin) == (1, "workload")
    assert end.what == "rank 1 ended with exit code 7"
    assert end.where == f"pod 1, {pods.names[1]}, pod name not known, node {pods.pods[1].node}"


def test_a_busy_port_is_named(pods: Pods, python: str) -> None:
    """The lead's agent looks before the start; this is for who takes the port after that."""
    pods.pods[0].run(
        f"{python} -m http.server {PORT} >/dev/null 2>&1 & until ss -Htln | grep -q {PORT}; do sleep 0.1; done"
    )
    some = contexts(pods, python, 1, "-1")
    assert Torchrun().launch(some[0]).port == PORT
    _, judgement = run(pods, some)
    assert judgement.end.code == 71 and f"MASTER_PORT {PORT}" in judgement.end.what, judgement


def test_a_python_without_torch_is_66(pods: Pods) -> None:
    _, judgement = run(pods, contexts(pods, "/usr/bin/python3", 1, "-1"))
    assert judgement.end.code == 66 and "/usr/bin/python3 has no torch" in judgement.end.what, judgement

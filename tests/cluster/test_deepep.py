"""`deepep` over pods, with a stand-in for DeepEP's test that needs no GPU (programs/internode.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.conftest import Start, Trial, all_codes
from tests.cluster.work import agent, order, result, result_of, sleeping
from tests.deadlines import short_deadline, talking
from tests.golden.golden import expect_result

STAND_IN = Path(__file__).with_name("programs") / "internode.py"
DEEPEP = "/opt/deepep/DeepEP"
PRELOAD = "libm.so.6"
"""Wherever it is: any library that can be loaded."""
FILES = {f"{DEEPEP}/tests/test_internode.py": STAND_IN.read_bytes()}
NVIDIA_SMI = """#!/bin/sh
[ "$1" = -L ] && for i in 0 1 2 3 4 5 6 7; do echo "GPU $i: NVIDIA B200 (UUID: GPU-$i)"; done
"""
NO_PROFILE = {"A4_PROFILE": "none"}


def fault(trial: Trial, *indices: int, what: str) -> None:
    for index in indices:
        trial.cluster.exec(index, ["bash", "-c", f"echo {what} >/tmp/deepep"])


def test_as_the_old_chart_asks_for_it(start: Start) -> None:
    env = {**NO_PROFILE, "RUN_DEEPEP_TEST": "true", "A4_SSH_PORT": "222", "LD_PRELOAD": PRELOAD}
    trial = start(
        2, gpus_per_pod=8, arguments=(), env=env, files={**FILES, "/usr/local/bin/nvidia-smi": NVIDIA_SMI.encode()}
    )
    all_codes(trial, 0)
    found = result(trial)
    assert found["workload"] == "deepep" and found["verdict"]["status"] == "passed", found["verdict"]
    assert found["verdict"]["what"] == "DeepEP is good: 32 of 32 cases passed on each of 2 nodes"
    figures = [32, 70.5, 231.0, 81.25, 265.0, 75.0, 245.0]
    assert found["tables"][0]["rows"] == [[index, *figures] for index in order(trial)]
    assert found["record"]["nodes"]["0"]["gpus"] == "8 × NVIDIA B200"
    assert found["gate"]["status"] == "passed" and found["gate"]["reference"]["rdma"]["combine"] == 75.0
    expect_result("deepep", found)
    said = "".join(out.data.decode() for out in trial.cluster.output(0) if out.stream == "out")
    arguments = f"arguments [], preloaded {PRELOAD}, in {DEEPEP}"
    assert said.count(arguments) == 2 and said.count("[testing] Running with") == 64, said
    assert "LD_PRELOAD" not in found["launch"]["environment"]
    assert found["launch"]["environment"]["A4_DEEPEP_PRELOAD"] == PRELOAD


def test_what_goes_wrong_on_a_node(start: Start) -> None:
    trial = sleeping(start, 2, gpus_per_pod=8, env=NO_PROFILE, files=FILES)
    other = order(trial)[1]

    fault(trial, 0, 1, what="mixed v1.2.1")
    mixed = agent(trial, other, "run", "deepep", "--", "--num-tokens", "2048", "--min-percent=80")
    assert mixed.returncode == 0, mixed
    assert mixed.stdout.count("arguments ['--num-tokens', '2048'], preloaded None") == 2
    assert mixed.stdout.count("NCCL INFO Channel") == 64
    assert result_of(trial, mixed)["record"]["nodes"][str(other)]["passed"] == 32

    fault(trial, other, what="31")
    few = agent(trial, 0, "run", "deepep")
    assert few.returncode == 65, few
    (reason,) = result_of(trial, few)["verdict"]["reasons"]
    assert reason.startswith(f"pod {other}: 31 of 32 cases passed; begun and not passed: case 19 ("), reason

    fault(trial, other, what="wrong")
    wrong = agent(trial, 0, "run", "deepep")
    verdict = result_of(trial, wrong)["verdict"]
    assert (wrong.returncode, verdict["origin"]) == (65, "workload"), wrong
    assert verdict["where"].startswith(f"pod {other},") and "a check failed in case 19 (" in verdict["what"]
    assert f"pod {other}: AssertionError: 511 != 512" in verdict["why"]
    assert "AssertionError: 511 != 512" in wrong.stderr

    fault(trial, 0, 1, what="slow")
    slow = agent(trial, 0, "run", "deepep", env={"DEEP_EP_DEVICE_TO_HCA_MAPPING": "0:mlx5_0:1"})
    assert slow.returncode == 65, slow
    assert "6.53 GB/s over RDMA" in slow.stdout
    found = result_of(trial, slow)
    assert "GPU-NIC mapping" in found["verdict"]["why"] and "is '0:mlx5_0:1' here" in found["verdict"]["why"]
    assert found["gate"]["status"] == "failed"
    few_tokens = agent(trial, 0, "run", "deepep", "--", "--min-rdma", "0")
    assert few_tokens.returncode == 0, few_tokens

    trial.cluster.exec(other, ["mv", f"{DEEPEP}/tests", f"{DEEPEP}/moved"])
    absent = agent(trial, 0, "run", "deepep")
    verdict = result_of(trial, absent)["verdict"]
    assert (absent.returncode, verdict["origin"]) == (66, "agent"), absent
    assert verdict["where"].startswith(f"pod {other},") and "tests/legacy/test_internode.py" in verdict["what"]
    trial.cluster.exec(other, ["mkdir", "-p", f"{DEEPEP}/tests/a/newer"])
    trial.cluster.exec(other, ["mv", f"{DEEPEP}/moved/test_internode.py", f"{DEEPEP}/tests/a/newer/"])
    fault(trial, 0, 1, what="0c984e2")
    moved = agent(trial, 0, "run", "deepep")
    assert moved.returncode == 0 and f"{DEEPEP}/tests/a/newer/test_internode.py" in moved.stdout, moved
    assert "24 of 24 cases passed on each of 2 nodes" in moved.stdout, moved

    alone = agent(trial, 0, "run", "deepep", "--nodes", "1")
    assert alone.returncode == 78 and "needs 2 or more" in alone.stderr, alone
    trial.cluster.terminate()
    all_codes(trial, 143)


@pytest.mark.faults
def test_a_node_that_is_silent(start: Start) -> None:
    mpirun = talking("/usr/bin/mpirun", "/mnt/hangs-0 -a -e /mnt/hangs-1")
    hang = {**FILES, "/tmp/deepep": b"hangs", "/usr/local/bin/mpirun": mpirun}
    limit = ("--stall-timeout", short_deadline(5, after="/mnt/hangs-1"))
    trial = start(2, gpus_per_pod=8, arguments=("deepep", *limit), env=NO_PROFILE, files=hang)
    all_codes(trial, 124)
    verdict = result(trial)["verdict"]
    assert verdict["what"] == "deepep hit the limit of 5 s without a line of output"
    for index in (0, 1):
        assert f"pod {index}: 6 of 32 cases passed, 7 were begun; begun and not passed: case 7 (" in verdict["why"]


def test_pods_without_eight_gpus_are_refused(start: Start) -> None:
    trial = start(2, gpus_per_pod=4, arguments=("deepep",), env=NO_PROFILE, files=FILES)
    all_codes(trial, 78)
    assert "deepep needs 8 GPUs in every pod; GPUS_PER_NODE is 4" in trial.said(1)["what"]

"""`ddp` and `collectives` over pods with gloo: real torchrun, real ranks, real failures, one form of result.

Each process imports torch, which is most of the work here: no more ranks than a test needs. What the programs do among
themselves is in tests/programs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import RUN_DIR, Start, Trial, all_codes
from tests.cluster.work import (
    RING_FILES,
    agent,
    asleep,
    following,
    hostnames,
    order,
    result,
    result_of,
    sleeping,
    until_phase,
)
from tests.deadlines import short_deadline
from tests.golden.golden import expect_result
from tests.torch_environment import TORCH_PYTHON

ROOT = Path(__file__).parents[2]
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv")
ENV = {
    "A4_PYTHON": str(TORCH_PYTHON),
    "TORCH_NCCL_USE_COMM_NONBLOCKING": "0",
    "HF_TOKEN": "hf_canary_of_torch_workloads",
}
HANGS = "/mnt/hangs"
"""Made by the rank that hangs (programs/sabotage.py)."""
ALL_WAIT = "/mnt/all-wait"
"""Made when rank 0 waits for it."""
TALKATIVE_PYTHON = f"""#!/bin/sh
# torch takes its time, longer on a busy machine: until the ranks are at work, every pod talks
case "$SABOTAGE" in hangs*)
    until test -e {ALL_WAIT}; do
        if test -e {HANGS} && grep -qs 'first call' "$A4_RECORD"; then touch {ALL_WAIT}; fi
        echo starting
        sleep 0.2
    done &
esac
exec {TORCH_PYTHON} "$@"
"""
PROGRAMS = Path(__file__).with_name("programs")
FILES = {
    "/sabotage/sitecustomize.py": (PROGRAMS / "sabotage.py").read_bytes(),
    "/workload/python": TALKATIVE_PYTHON.encode(),
    "/data/train.py": (PROGRAMS / "place.py").read_bytes(),
}
PAGE = (ROOT / "docs/deployments/script.md").read_text()
TWO = ("--nodes", "2")
"""The first two of three pods in the plan, which are pods 0 and 2: a rank's number is not its pod's."""


@pytest.fixture(scope="module")
def three() -> Iterator[Trial]:
    """Three pods that sleep. A run's SABOTAGE makes ranks of torch do something else than they should."""
    env = {**ENV, "A4_PYTHON": "/workload/python", "PYTHONPATH": "/sabotage"}
    with asleep(3, files=FILES, env=env) as trial:
        assert order(trial) == [0, 2, 1]
        yield trial
        trial.expect_events()


def test_ddp_as_the_job(start: Start) -> None:
    trial = start(2, arguments=("ddp", "--", "--steps", "3"), env={**ENV, "A4_SLEEP_ON": "always", "A4_REPORT": "true"})
    until_phase(trial, "sleeping", 0, 1)
    trial.until(0, f"test -e {RUN_DIR}/results/result.json")  # another process writes it
    found = result(trial)
    assert found["verdict"]["status"] == "passed" and found["verdict"]["code"] == 0, trial.log()
    assert [pod["index"] for pod in found["pods"]] == order(trial)
    assert [pod["status"] for pod in found["pods"]] == [0] * 2
    for pod in found["pods"]:
        phases = pod["phases"]
        assert phases["agent-started"] <= phases["plan-ready"] <= phases["process-started"] <= phases["process-ended"]
        assert "ranks-ready" in phases
    assert found["versions"]["torch"].startswith("2.")
    expect_result("ddp", found)
    assert "HF_TOKEN" not in found["launch"]["environment"]
    assert "TORCH_NCCL_USE_COMM_NONBLOCKING" not in found["launch"]["environment"]
    assert len(found["tables"][0]["rows"]) == 2
    assert "hf_canary_of_torch_workloads" not in json.dumps(found)
    report = f"{RUN_DIR}/results/report.html"
    trial.until(0, f"test -e {report}")
    page = trial.cluster.read(0, report)
    assert "passed" in page and found["run"] in page and "hf_canary" not in page
    trial.cluster.terminate()
    all_codes(trial, 143)


def test_collectives_on_some_of_the_pods(three: Trial) -> None:
    sizes = ("-b", "64K", "-e", "256K", "-f", "4", "-n", "2", "-w", "1")
    done = agent(three, 1, "run", *TWO, "collectives", "--", *sizes)
    assert done.returncode == 0, done
    assert "# Collective test starting: all_reduce" in done.stdout
    assert "busbw" in done.stdout
    found = result_of(three, done)
    expect_result("collectives", found)
    assert [pod["index"] for pod in found["pods"]] == [0, 2]
    assert tuple(sweep["collective"] for sweep in found["sweeps"]) == COLLECTIVES
    for sweep in found["sweeps"]:
        assert sweep["ranks"] == 2 and sweep["backend"] == "gloo"
        measured = [row["in_place"] or row["out_of_place"] for row in sweep["rows"]]
        assert [row["size"] for row in sweep["rows"]] == [65536, 262144]
        assert all(one["busbw"] > 0 and one["wrong"] == 0 for one in measured)


def test_the_script_of_the_page_without_the_coordinators_pod(three: Trial) -> None:
    """With a program that does without torch."""
    (script,) = re.findall(r"^```bash\n(#!/bin/bash\n.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    words = ("run", "--exclude", "0", "script", "--", "bash", "-c", script)
    done = agent(three, 1, *words, env={"PATH": f"{TORCH_PYTHON.parent}:/usr/sbin:/usr/bin:/sbin:/bin"})
    places = [f"{rank} of 2, {rank}.0 on {node} in /" for rank, node in enumerate(hostnames(three, 2, 1))]
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, places), done


def test_a_rank_that_is_killed_is_named_and_not_the_one_that_misses_it(three: Trial) -> None:
    done = agent(three, 0, "run", *TWO, "ddp", env={"SABOTAGE": "killed on 1"})
    assert done.returncode not in (0, 65, 75), done
    end = result_of(three, done)["verdict"]
    assert "rank 1" in end["what"] and "SIGKILL" in end["what"] and end["where"].startswith("pod 2,"), end


@pytest.mark.faults
def test_a_hang_ends_at_the_limit_and_says_who_hangs_where(three: Trial) -> None:
    limit = ("--stall-timeout", short_deadline(5, after=ALL_WAIT))
    done = agent(three, 1, "run", *TWO, *limit, "collectives", env={"SABOTAGE": "hangs on 1"})
    assert done.returncode == 124, done
    verdict = result_of(three, done)["verdict"]
    assert verdict["what"] == "collectives hit the limit of 5 s without a line of output"
    assert "pod 2: rank 1" in verdict["why"] and "sabotage" in verdict["why"], verdict
    assert "all_reduce" in verdict["why"], verdict


@pytest.mark.faults
def test_a_lost_pod_is_75_though_programs_under_torchrun_have_failed_of_themselves(start: Start) -> None:
    """Their errors are their own, unlike those by which torch says that a peer is away. Pod 0 takes no part."""
    trial = sleeping(start, 4, files=RING_FILES, env=ENV)
    with following(trial, 0, "torchrun", "--exclude", "0", "--", "/job/ring.py", "10") as (run, run_id):
        for index in (1, 2, 3):
            trial.until(index, f"test -e /mnt/turns-{index}")
        trial.cluster.link(2, up=False)
        assert run.wait() == 75, run.stderr.read()
    verdict = result(trial, f"{RUN_DIR}/runs/{run_id}")["verdict"]
    assert (verdict["what"], verdict["where"][:6]) == ("a pod was lost during the run", "pod 2,"), verdict
    assert re.search(r"rank \d failed: (Connection\w*|BrokenPipe|Timeout)Error", verdict["why"]), verdict

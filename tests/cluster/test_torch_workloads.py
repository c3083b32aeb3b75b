"""`ddp` and `collectives` over four pods with gloo: real torchrun, real ranks, real failures, one form of result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import RUN_DIR, Start, Trial, all_codes
from tests.cluster.work import agent, newest, order, result, sleeping

ROOT = Path(__file__).parents[2]
TORCH = ROOT / ".venv-torch" / "bin" / "python"
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv")
ENV = {"A4_PYTHON": str(TORCH), "TORCH_NCCL_USE_COMM_NONBLOCKING": "0", "HF_TOKEN": "hf_canary_of_torch_workloads"}
TALKATIVE_PYTHON = f"""#!/bin/sh
# torch takes its time, longer on a busy machine: until the ranks are at work, rank 0's pod talks
[ "$A4_NODE_RANK" != 0 ] || until grep -qs 'first call' {RUN_DIR}/runs/*/record.jsonl; do
    echo starting
    sleep 0.5
done &
exec {TORCH} "$@"
"""
SABOTAGE = Path(__file__).with_name("programs") / "sabotage.py"


def sabotaged(what: str) -> dict[str, Any]:
    """A cluster whose ranks of torch do something else than they should (programs/sabotage.py)."""
    files = {"/sabotage/sitecustomize.py": SABOTAGE.read_bytes()}
    return {"files": files, "env": {**ENV, "PYTHONPATH": "/sabotage", "SABOTAGE": what}}


def test_ddp_as_the_job_over_four_pods(start: Start) -> None:
    trial = start(4, arguments=("ddp", "--", "--steps", "3"), env={**ENV, "A4_SLEEP_ON": "always", "A4_REPORT": "true"})
    for index in range(4):
        trial.until(index, f'grep -qs \'"phase": "sleeping"\' {RUN_DIR}/state.json')
    found = result(trial)
    assert found["verdict"]["status"] == "passed" and found["verdict"]["code"] == 0, trial.log()
    assert [pod["index"] for pod in found["pods"]] == order(trial)
    assert [pod["status"] for pod in found["pods"]] == [0] * 4
    for pod in found["pods"]:
        phases = pod["phases"]
        assert phases["agent-started"] <= phases["plan-ready"] <= phases["process-started"] <= phases["process-ended"]
        assert "ranks-ready" in phases
    assert found["versions"]["torch"].startswith("2.")
    assert found["launch"]["environment"]["HF_TOKEN"] == "***"
    assert "TORCH_NCCL_USE_COMM_NONBLOCKING" not in found["launch"]["environment"]
    assert len(found["tables"][0]["rows"]) == 4
    assert "hf_canary_of_torch_workloads" not in json.dumps(found)
    report = f"{RUN_DIR}/results/report.html"
    trial.until(0, f"test -e {report}")
    page = trial.cluster.read(0, report)
    assert "passed" in page and found["run"] in page and "hf_canary" not in page
    trial.cluster.terminate()
    all_codes(trial, 0)


def test_collectives_submitted_to_four_pods(start: Start) -> None:
    trial = sleeping(start, 4, env=ENV)
    done = agent(trial, 2, "run", "collectives", "--", "-b", "64K", "-e", "256K", "-f", "4", "-n", "2", "-w", "1")
    assert done.returncode == 0, done
    assert "# Collective test starting: all_reduce" in done.stdout
    assert "busbw" in done.stdout
    found = newest(trial)
    assert tuple(sweep["collective"] for sweep in found["sweeps"]) == COLLECTIVES
    for sweep in found["sweeps"]:
        assert sweep["ranks"] == 4 and sweep["backend"] == "gloo"
        measured = [row["in_place"] or row["out_of_place"] for row in sweep["rows"]]
        assert [row["size"] for row in sweep["rows"]] == [65536, 262144]
        assert all(one["busbw"] > 0 and one["wrong"] == 0 for one in measured)

    wrong = agent(trial, 3, "run", "collectives", "--", "--tests", "all_reduc")
    assert wrong.returncode == 2 and "all_reduce" in wrong.stderr, wrong
    trial.cluster.terminate()
    all_codes(trial, 0)


def test_a_run_on_some_of_the_pods(start: Start) -> None:
    trial = sleeping(start, 3, env=ENV)
    subset = agent(trial, 1, "run", "ddp", "--exclude", "0", "--", "--steps", "2")
    assert subset.returncode == 0, subset
    assert [pod["index"] for pod in newest(trial)["pods"]] == [index for index in order(trial) if index != 0]
    trial.cluster.terminate()
    all_codes(trial, 0)


@pytest.mark.parametrize("workload", ["ddp", "collectives"])
def test_a_wrong_sum_is_65_and_names_the_rank(start: Start, workload: str) -> None:
    trial = start(4, arguments=(workload,), **sabotaged("all_reduce wrong on 2"))
    all_codes(trial, 65)
    found = result(trial)
    assert (found["verdict"]["status"], found["verdict"]["origin"]) == ("failed", "workload")
    pod = order(trial)[2]
    assert any("rank 2" in reason and f"-{pod}" in reason for reason in found["verdict"]["reasons"]), found["verdict"]


def test_a_rank_that_dies_is_named_and_not_those_that_miss_it(start: Start) -> None:
    trial = sleeping(start, 4, **sabotaged("killed on 2"))
    pod = order(trial)[2]
    done = agent(trial, 0, "run", "ddp")
    assert done.returncode not in (0, 65, 75), done
    end = newest(trial)["verdict"]
    assert "rank 2" in end["what"] and "SIGKILL" in end["what"] and end["where"].startswith(f"pod {pod},"), end
    done = agent(trial, 1, "run", "collectives", env={"SABOTAGE": "raises on 1"})
    end = newest(trial)["verdict"]
    assert "rank 1" in end["what"] and "RuntimeError: sabotage" in f"{end['what']}\n{end['why']}", end
    assert end["where"].startswith(f"pod {order(trial)[1]},"), end
    trial.cluster.terminate()
    all_codes(trial, 0)


def test_a_hang_ends_at_the_limit_and_says_who_hangs_where(start: Start) -> None:
    given = sabotaged("hangs on 3")
    given["files"]["/workload/python"] = TALKATIVE_PYTHON.encode()
    given["env"] |= {"A4_PYTHON": "/workload/python", "A4_STALL_TIMEOUT_SECONDS": "14", "A4_LEASE_SECONDS": "10"}
    trial = start(4, arguments=("collectives",), **given)
    all_codes(trial, 124)
    verdict = result(trial)["verdict"]
    assert verdict["what"] == "collectives hit the limit of 14 s without a line of output"
    assert f"pod {order(trial)[3]}: rank 3" in verdict["why"] and "sabotage" in verdict["why"], verdict
    said = "".join(out.data.decode() for out in trial.cluster.output(0) if out.stream == "err")
    assert "a4-agent: collectives-" in said and "all_reduce" in said, said


def test_a_pod_that_is_lost_is_75_and_not_the_connection_that_broke(start: Start) -> None:
    trial = start(4, arguments=("collectives", "--", "-n", "100000"), env={**ENV, "A4_LEASE_SECONDS": "5"})
    index = order_when_made(trial)[1]
    trial.until(0, "grep -qs 'first call' /run/a4-agent/runs/*/record.jsonl")
    trial.cluster.kill_pod(index)
    codes = trial.codes()
    assert {code for pod, code in codes.items() if pod != index} == {75}, f"{codes}\n{trial.log()}"
    assert f"pod {index}" in result(trial)["verdict"]["why"] + result(trial)["verdict"]["where"]


def order_when_made(trial: Trial) -> list[int]:
    trial.until(0, f"test -s {RUN_DIR}/plan.json")
    return order(trial)

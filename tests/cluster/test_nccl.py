"""`nccl` in a local cluster, with stand-ins for the programs of nccl-tests: real mpirun, ranks, logs and verdicts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import RUN_DIR, Start, Trial, all_codes
from tests.cluster.work import agent, result_of, sleeping
from tests.deadlines import short_deadline, talking
from tests.golden.golden import expect_result

STAND_IN = (Path(__file__).with_name("programs") / "nccl_perf.py").read_text()
PROGRAM = f"#!{sys.executable}\n{STAND_IN}".encode()
TOKEN = "hf_canary_of_nccl_tests"
ENV = {"A4_NCCL_TESTS_DIR": "/nccl", "HF_TOKEN": TOKEN, "NCCL_DEBUG": "WARN"}
HANGS = "/mnt/hangs"
"""Made by the programs when all their ranks are there and begin to hang."""
SIZES = ("-b", "256M", "-e", "1G")
BASELINE = {
    "version": 1,
    "baselines": [
        {
            "name": "a test's",
            "profile": "none",
            "collective": "all_gather",
            "nodes": 2,
            "gpus_per_node": 2,
            "iterations": 20,
            "warmup": 5,
            "source": "made up",
            "busbw": {"512M": 350, "1G": 350},
        }
    ],
}
BOTH = ("all_reduce", "all_gather")


def files(*names: str) -> dict[str, bytes]:
    return {f"/nccl/build/{name}_perf": PROGRAM for name in names} | {"/own.json": json.dumps(BASELINE).encode()}


def run(trial: Trial, *words: str, limit: str = "", **env: str) -> tuple[dict[str, Any], str]:
    """The result of `a4-agent run nccl -- WORDS`, and what it printed."""
    options = ["--stall-timeout", limit] if limit else []
    done = agent(trial, 1, "run", *options, "nccl", "--", *SIZES, *words, env=env)
    found = result_of(trial, done)
    printed = done.stdout + done.stderr
    assert done.returncode == found["verdict"]["code"], done
    assert TOKEN not in json.dumps(found) + printed
    return found, printed


def notes(trial: Trial, found: dict[str, Any], index: int = 0) -> list[str]:
    """Names of the files that NCCL and its tests have written on a pod."""
    return trial.cluster.exec(index, ["ls", f"{RUN_DIR}/runs/{found['run']}/notes"]).stdout.split()


def test_a_good_run_and_all_that_it_leaves(start: Start) -> None:
    secret = {"A4_SECRET_ENV": "QUIET", "MAX_NUM_TOKENS": "536870912"}
    env = {**ENV, **secret, "A4_BASELINES": "/own.json"}
    trial = sleeping(start, 2, gpus_per_pod=2, env=env, files=files(*BOTH))
    found, printed = run(trial, "--repeat", "2", "--save-baseline", "healthy", STAND_IN="warns")
    assert found["verdict"]["what"] == "nccl is good: all_reduce, all_gather on 4 ranks of 2 pods", printed
    assert [sweep["collective"] for sweep in found["sweeps"]] == ["all_reduce"] * 2 + ["all_gather"] * 2
    for sweep in found["sweeps"]:
        assert (sweep["ranks"], sweep["iterations"], sweep["warmup"], sweep["out_of_bounds"]) == (4, 20, 5, 0)
        assert [row["size"] for row in sweep["rows"]] == [1 << 28, 1 << 29, 1 << 30]
    assert found["sweeps"][2]["baseline"]["source"] == "made up"
    assert (found["gate"]["status"], [row["percent"] for row in found["gate"]["rows"]]) == ("passed", [98.3, 98.3])
    assert "no baseline for all_reduce" in found["gate"]["not_judged"]["all_reduce"]
    assert found["versions"].items() >= {"nccl": "2.28.9", "nccl-tests": "2.19.6"}.items()
    assert {table["name"] for table in found["tables"]} == {"pairs", "nccl", "transport"}
    expect_result("nccl", found)
    # What NCCL warned of came back from the files.
    assert "NCCL on pod 1: something is odd with *** (8 times)" in printed
    assert "gIB (2 NICs found, 2 NICs used, 16 channels, GPUDirect)" in printed
    # Each rank had a log of its own, and rank 0's results are kept without its environment.
    names = notes(trial, found)
    assert len(notes(trial, found, 1)) == 4 * 2
    assert sorted(name for name in names if "log" not in name) == [
        "all_gather-2.json",
        "all_gather.json",
        "all_reduce-2.json",
        "all_reduce.json",
        "connectivity.jsonl",
    ]
    assert len(names) == 5 + 4 * 2
    assert TOKEN not in trial.cluster.exec(0, ["bash", "-c", f"cat {RUN_DIR}/runs/{found['run']}/notes/*.json*"]).stdout
    kept = trial.cluster.exec(0, ["ls", f"{RUN_DIR}/results/runs/{found['run']}"]).stdout.split()
    assert {"connectivity-test.log", "nccl-test-results.txt", "result.json"} <= set(kept)
    _, *saved = json.loads(trial.cluster.read(0, "/own.json"))["baselines"]
    assert [(one["name"], one["collective"], one["busbw"]) for one in saved] == [
        ("healthy", test, {"536870912": 344.0, "1073741824": 344.0}) for test in BOTH
    ]

    # What was saved judges the next run; without -J the table is read, secrets and all.
    found, printed = run(trial, "--tests", "all_reduce", STAND_IN="old", STAND_IN_GBS="300", QUIET="1073741824")
    assert "  536870912  " in printed and "1073741824" not in printed
    assert (found["verdict"]["code"], found["verdict"]["what"]) == (65, "nccl ran well but below its gate")
    assert "300.00 GB/s are 87.2 % of 344.00 GB/s (healthy), 90 % are wanted" in found["verdict"]["reasons"][0]
    assert "all_reduce.json" not in notes(trial, found)
    trial.cluster.terminate()
    all_codes(trial, 143)


@pytest.mark.faults
def test_a_rank_that_dies_and_a_hang(start: Start) -> None:
    programs = {f"/nccl/{name}_perf": PROGRAM for name in BOTH} | {
        "/usr/local/bin/mpirun": talking("/usr/bin/mpirun", HANGS, '[ "$STAND_IN" != hangs ]')
    }
    trial = sleeping(start, 2, gpus_per_pod=2, files=programs, env=ENV)
    found, printed = run(trial, STAND_IN="dies warns")
    assert found["verdict"]["code"] == 3 and "rank 1 failed" in found["verdict"]["what"], printed
    assert "something is odd with ***" in found["verdict"]["why"] and "something is odd" in printed
    assert "Test NCCL failure common.cu:123" in found["verdict"]["why"]
    found, printed = run(trial, limit=short_deadline(4, after=HANGS), STAND_IN="hangs")
    assert found["verdict"]["what"] == "nccl hit the limit of 4 s without a line of output", printed
    assert not [name for name in notes(trial, found) if name.endswith(".json")], "secrets of a run that was ended"
    trial.cluster.terminate()
    all_codes(trial, 143)

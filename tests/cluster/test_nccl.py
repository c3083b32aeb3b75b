"""`nccl` in a local cluster, with stand-ins for the programs of nccl-tests: real mpirun, ranks, logs and verdicts."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.fabrics.a4_gib import SCRIPT as GIB_SCRIPT
from tests.cluster.conftest import RUN_DIR, Start, Trial, all_codes
from tests.cluster.test_own_programs import with_mpi
from tests.cluster.work import agent, result, result_of, sleeping
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

    # What was saved judges the next run; without -J the table is read, secrets and all; and a floor.
    found, printed = run(trial, "--tests", "all_reduce", STAND_IN="old", STAND_IN_GBS="300", QUIET="1073741824")
    assert "  536870912  " in printed and "1073741824" not in printed
    assert (found["verdict"]["code"], found["verdict"]["what"]) == (65, "nccl ran well but below its gate")
    assert "300.00 GB/s are 87.2 % of 344.00 GB/s (healthy), 90 % are wanted" in found["verdict"]["reasons"][0]
    assert "all_reduce.json" not in notes(trial, found)
    found, _ = run(trial, "--tests", "all_reduce", "--min-busbw", "400")
    assert found["verdict"]["code"] == 65 and "--min-busbw 400 is wanted" in found["gate"]["reason"]
    found, printed = run(trial, "--tests", "all_gather", "-n", "1")
    assert (found["verdict"]["code"], found["gate"]["status"]) == (0, "not judged")
    assert "1 timed iterations, 5 are needed" in found["gate"]["reason"]

    shown = agent(trial, 1, "run", "--dry-run", "nccl", "--", "--tests", "all_gather")
    (line,) = [line for line in shown.stdout.splitlines() if "mpirun" in line and "all_gather" in line]
    assert line.endswith("/notes -b 2M -e 16G -f 2 -g 1 -n 20 -w 5"), shown

    trial.cluster.terminate()
    all_codes(trial, 143)


@pytest.mark.faults
def test_many_runs_and_where_baselines_are_saved(start: Start) -> None:
    trial = sleeping(start, 2, gpus_per_pod=2, env={**ENV, "A4_BASELINES": "/own.json"}, files=files(*BOTH))
    # A file that nobody has read is left as it is; a new one is written.
    trial.cluster.exec(0, ["cp", "/own.json", "/other.json"])
    for path, entries in (("/other.json", 1), ("/new.json", 1)):
        found, printed = run(trial, "--tests", "all_gather", "--save-baseline", path)
        assert found["verdict"]["code"] == 0, printed
        assert len(json.loads(trial.cluster.read(0, path))["baselines"]) == entries
    # Many runs of one test, and many variables.
    many = {f"A_VARIABLE_OF_40_LETTERS_{number:015}": "x" for number in range(400)}
    found, printed = run(trial, "--tests", "all_gather", "--repeat", "8", "-n", "1", **many)
    assert len(found["sweeps"]) == 8 and "all_gather-8.json" in notes(trial, found), printed
    trial.cluster.terminate()
    all_codes(trial, 143)
    assert re.findall(r"not stored in /: (\S+) \(it is there already, and left as", trial.log()) == ["other.json"]


@pytest.mark.faults
def test_what_is_wrong_is_said(start: Start) -> None:
    trial = sleeping(start, 2, gpus_per_pod=2, env=ENV, files=files(*BOTH))
    for what in ("wrong", "wrong old"):
        found, _ = run(trial, STAND_IN=what)
        assert (found["verdict"]["code"], found["verdict"]["what"]) == (65, "results of nccl-tests are wrong")
        assert "all_reduce: 3 wrong elements at 1G of float, out-of-place" in found["verdict"]["reasons"]
        assert "all_reduce: 3 values are out of bounds" in found["verdict"]["reasons"]
    found, _ = run(trial, STAND_IN="empty")
    assert (found["verdict"]["code"], found["sweeps"]) == (65, [])
    assert "all_gather measured nothing: it printed its usage (invalid option '?')" in found["verdict"]["reasons"]
    for what in ("alone", "alone old"):
        found, printed = run(trial, STAND_IN=what)
        assert found["verdict"]["what"].startswith("all_reduce_perf was built without MPI"), printed
    found, _ = run(trial, "--tests", "all_reduce,alltoall")
    assert found["verdict"]["code"] == 66 and found["verdict"]["where"].startswith("pod 0,")
    why = found["verdict"]["what"] + found["verdict"]["why"]
    assert "alltoall_perf" in why and "/third_party/nccl-tests-mpi/build" in why and "run collectives" in why
    for words in (["--tests", "all_reduc"], ["all_reduce"], ["--repeat", "0"]):
        done = agent(trial, 0, "run", "nccl", "--", *words)
        assert done.returncode == 2 and words[-1] in done.stderr, done
    trial.cluster.terminate()
    all_codes(trial, 143)


def test_sockets_where_the_profile_means_gib(start: Start) -> None:
    trial = start(
        1,
        gpus_per_pod=2,
        arguments=("nccl", "--", *SIZES),
        env={**ENV, "A4_PROFILE": "a4-gib", "STAND_IN": "sockets"},
        files=files(*BOTH) | {GIB_SCRIPT: b""},
    )
    all_codes(trial, 65)
    found = result(trial)
    reason = "profile a4-gib expects NCCL's network gIB, but all_reduce went over Socket on pod 0"
    assert reason in found["verdict"]["reasons"]
    assert found["gate"]["status"] == "not judged" and "network" in found["gate"]["reason"]


def test_sockets_under_a_program_of_the_user(start: Start) -> None:
    """Which goes on as it is: that NCCL took sockets is a warning, or 65 where that is asked for."""
    env = {**ENV, "A4_PROFILE": "a4-gib", "STAND_IN": "sockets"}
    trial = sleeping(start, 2, gpus_per_pod=1, env=env, files=files("all_reduce") | {GIB_SCRIPT: b""})
    said = "profile a4-gib expects NCCL's network gIB, but mpirun went over Socket on pods 0-1"
    program = ("mpirun", "--", "/nccl/build/all_reduce_perf")
    done = agent(trial, 1, *program)
    found = result_of(trial, done)
    assert done.returncode == 0 and said in done.stdout + done.stderr, done
    assert (found["warnings"], found["verdict"]["reasons"]) == ([said], [])
    assert found["record"]["network"] == "Socket (1 NICs found, 1 NICs used, 16 channels)"
    done = agent(trial, 0, *program, env={"A4_WRONG_NETWORK": "fail"})
    assert done.returncode == 65 and said in done.stderr, done
    own = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "/tmp/own.%p"}
    done = agent(trial, 0, *program, env=own)
    assert done.returncode == 0 and "warnings" not in result_of(trial, done)
    assert "Using network Socket" in trial.cluster.exec(0, ["bash", "-c", "cat /tmp/own.*"]).stdout
    trial.cluster.terminate()
    all_codes(trial, 143)


@pytest.mark.faults
@pytest.mark.parametrize("which", ["4", "5"])
def test_a_rank_that_dies_and_a_hang(start: Start, which: str, ompi5: Path) -> None:
    setup = with_mpi(which, ompi5)
    python = f"{ompi5}/bin/python" if which == "5" else sys.executable
    programs = {f"/nccl/{name}_perf": f"#!{python}\n{STAND_IN}".encode() for name in BOTH}
    limit = "30"
    if which == "4":  # the agent of the other takes the mpirun beside it, whatever PATH says
        programs["/usr/local/bin/mpirun"] = talking("/usr/bin/mpirun", HANGS, '[ "$STAND_IN" != hangs ]')
        limit = short_deadline(4, after=HANGS)
    env = {**ENV, **setup.pop("env", {})}
    trial = sleeping(start, 2, gpus_per_pod=2, **{**setup, "files": programs, "env": env})
    found, printed = run(trial, STAND_IN="dies warns")
    assert found["verdict"]["code"] == 3 and "rank 1 failed" in found["verdict"]["what"], printed
    assert "something is odd with ***" in found["verdict"]["why"] and "something is odd" in printed
    if which == "4":  # 5 loses what ranks print just before their end
        assert "Test NCCL failure common.cu:123" in found["verdict"]["why"]
    found, printed = run(trial, limit=limit, STAND_IN="hangs")
    assert found["verdict"]["what"] == f"nccl hit the limit of {limit} s without a line of output", printed
    assert not [name for name in notes(trial, found) if name.endswith(".json")], "secrets of a run that was ended"
    found, printed = run(trial, "--tests", "all_gather")
    assert found["verdict"]["code"] == 0, printed
    trial.cluster.terminate()
    all_codes(trial, 143)

"""`nccl` with a build of nccl-tests (A4_NCCL_TESTS_DIR): what it says is what the same command says by hand."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from agent import wire
from agent.decide import result
from agent.workloads.nccl_tests import parse
from agent.workloads.sweeps import MeasuredSweep
from scripts.result_schema import result_schema
from tests.cluster.conftest import RUN_DIR, Trial
from tests.gpu.conftest import RUN_SECONDS, Cluster, agent

SCHEMA = result_schema(strict=True)
BUILD = os.environ.get("A4_NCCL_TESTS_DIR", "")
LIBRARIES = os.environ.get("LD_LIBRARY_PATH", "")
KEPT = os.environ.get("A4_TEST_KEEP_RESULTS", "")
"""Directory in which the results stay, for docs/performance.md."""
TOKEN = "hf_canary_of_nccl_on_gpus"
ENV = {"HF_TOKEN": TOKEN, "A4_NCCL_TESTS_DIR": BUILD, **({"LD_LIBRARY_PATH": LIBRARIES} if LIBRARIES else {})}
COUNTS = ("-f", "2", "-g", "1", "-n", "20", "-w", "5")
REPEATS = 3

pytestmark = pytest.mark.skipif(not BUILD, reason="A4_NCCL_TESTS_DIR names no build of nccl-tests with MPI=1")


def kept(trial: Trial, name: str) -> dict[str, Any]:
    """The newest run's result.json, which is as the schema says."""
    state = json.loads(trial.cluster.read(0, f"{RUN_DIR}/state.json"))
    text = trial.cluster.read(0, f"{RUN_DIR}/runs/{state['runs'][-1]['id']}/result.json")
    assert TOKEN not in text
    if KEPT:
        (Path(KEPT) / f"{name}.json").write_text(text)
    found: dict[str, Any] = json.loads(text)
    jsonschema.validate(found, SCHEMA)
    return found


def keep_output(name: str, text: str) -> None:
    if KEPT:
        (Path(KEPT) / f"{name}.txt").write_text(text)


def program(name: str) -> str:
    return next(str(path) for path in (Path(BUILD) / name, Path(BUILD) / "build" / name) if path.exists())


def busbw(sweeps: Sequence[MeasuredSweep | result.Sweep], size: int) -> float:
    """The median of all runs, out of place."""
    rows = [row for sweep in sweeps for row in sweep.rows if row.size == size]
    return statistics.median(row.out_of_place.busbw for row in rows if row.out_of_place)


def test_the_same_as_by_hand(cluster: Cluster) -> None:
    trial = cluster(1, 2, env=ENV)
    sizes = ("-b", "256M", "-e", "1G")
    typed = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "--host", "localhost:2", "-np", "2"]
    typed += [program("all_reduce_perf"), *sizes, *COUNTS]
    by_hand: list[MeasuredSweep] = []
    for _ in range(REPEATS):
        done = trial.cluster.exec(0, ["env", "HOME=/root", *typed], timeout=RUN_SECONDS)
        assert done.returncode == 0, done
        by_hand += parse(done.stdout)
    keep_output("nccl-by-hand", done.stdout)
    done = agent(trial, 0, "run", "nccl", "--", "--tests", "all_reduce", *sizes, "--repeat", str(REPEATS))
    assert done.returncode == 0, done
    found = kept(trial, "nccl-1x2")
    sweeps = [wire.from_json(result.Sweep, data) for data in found["sweeps"]]
    assert len(sweeps) == REPEATS and all(sweep.ranks == 2 and sweep.iterations == 20 for sweep in sweeps)
    assert found["versions"]["nccl"]
    assert busbw(sweeps, 1 << 30) / busbw(by_hand, 1 << 30) == pytest.approx(1.0, abs=0.02)


def test_two_pods_go_over_sockets_and_that_is_said(cluster: Cluster) -> None:
    trial = cluster(2, 2, env=ENV)
    done = agent(trial, 1, "run", "nccl", "--", "-b", "1M", "-e", "64M")
    assert done.returncode == 0, done
    keep_output("nccl-2x2", done.stdout)
    found = kept(trial, "nccl-2x2")
    assert found["record"]["network"].startswith("Socket ("), found["record"]
    (transport,) = [table for table in found["tables"] if table["name"] == "transport"]
    assert [row[2] for row in transport["rows"]] == ["Socket"] * 4 and all(row[5] >= 1 for row in transport["rows"])
    assert [sweep["collective"] for sweep in found["sweeps"]] == ["all_reduce", "all_gather"]
    assert all(sweep["ranks"] == 4 and sweep["out_of_bounds"] == 0 for sweep in found["sweeps"])
    assert found["gate"]["status"] == "not judged"
    notes = f"{RUN_DIR}/runs/{found['run']}/notes"
    assert TOKEN not in trial.cluster.exec(0, ["bash", "-c", f"cat {notes}/*"]).stdout

"""`ddp` and `collectives` over NCCL: inside one pod over NVLink, and across pods over sockets."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from scripts.result_schema import result_schema
from tests.cluster.conftest import RUN_DIR, Trial
from tests.gpu.conftest import Cluster, agent

SCHEMA = result_schema(strict=True)
LAYOUTS = [(1, 2), (2, 1), (2, 2)]
"""(pods, GPUs per pod); those for which the machine has too few GPUs are skipped."""
COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv"]
KEPT = os.environ.get("A4_TEST_KEEP_RESULTS", "")
"""Directory in which the results stay, for docs/performance.md."""


def kept(trial: Trial, name: str) -> dict[str, Any]:
    """The newest run's result.json, which is as the schema says."""
    state = json.loads(trial.cluster.read(0, f"{RUN_DIR}/state.json"))
    text = trial.cluster.read(0, f"{RUN_DIR}/runs/{state['runs'][-1]['id']}/result.json")
    if KEPT:
        (Path(KEPT) / f"{name}.json").write_text(text)
    found: dict[str, Any] = json.loads(text)
    jsonschema.validate(found, SCHEMA)
    return found


@pytest.mark.parametrize(("pods", "gpus"), LAYOUTS)
def test_both_over_nccl(cluster: Cluster, pods: int, gpus: int) -> None:
    trial = cluster(pods, gpus)
    done = agent(trial, pods - 1, "run", "ddp")
    assert done.returncode == 0, done
    found = kept(trial, f"ddp-{pods}x{gpus}")
    assert found["record"]["backend"] == "nccl" and found["versions"]["nccl"]
    assert all(row[2].startswith("NVIDIA") for row in found["tables"][0]["rows"])

    most = "1G" if pods == 1 else "256M"
    env = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "/tmp/nccl.log"}
    done = agent(trial, 0, "run", "collectives", "--", "-b", "1M", "-e", most, "-f", "4", env=env)
    assert done.returncode == 0, done
    found = kept(trial, f"collectives-{pods}x{gpus}")
    assert [sweep["collective"] for sweep in found["sweeps"]] == COLLECTIVES
    for sweep in found["sweeps"]:
        assert (sweep["ranks"], sweep["backend"]) == (pods * gpus, "nccl")
        assert sum(len([m for m in (row["in_place"], row["out_of_place"]) if m]) for row in sweep["rows"]) >= 4
    notes = trial.cluster.read(0, "/tmp/nccl.log")
    assert ("via NET/Socket" in notes) == (pods > 1), notes


def test_more_ranks_than_gpus_are_refused_in_words(cluster: Cluster) -> None:
    trial = cluster(1, 1, env={"GPUS_PER_NODE": "2"})
    done = agent(trial, 0, "run", "collectives", "--", "--tests", "all_reduce")
    assert done.returncode not in (0, 65), done
    assert "2 ranks on this pod, but 1 GPU" in done.stderr, done


def test_a_rank_that_dies_in_the_middle_is_named(cluster: Cluster) -> None:
    program = Path(__file__).parents[1] / "cluster" / "programs" / "sabotage.py"
    files = {"/sabotage/sitecustomize.py": program.read_bytes()}
    trial = cluster(2, 1, files=files, env={"PYTHONPATH": "/sabotage", "SABOTAGE": "killed on 1"})
    done = agent(trial, 0, "run", "collectives")
    end = kept(trial, "killed")["verdict"]
    assert done.returncode == 137 and "rank 1 was killed by SIGKILL" in end["what"], (done, end)

"""`a4-agent why`, typed in a pod while a run hangs and when it is over."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import Trial, starting
from tests.cluster.test_why import CULPRIT, FILES, RANKS, TORCH
from tests.cluster.work import agent, following, sleeping


@pytest.fixture
def trial() -> Iterator[Trial]:
    with starting() as start:
        env = {"A4_PYTHON": str(TORCH), "OMP_NUM_THREADS": "1"}
        yield sleeping(start, 4, gpus_per_pod=2, files=FILES, env=env)


def test_why_of_a_run_that_hangs_and_of_one_that_is_over(trial: Trial) -> None:
    assert trial.cluster.exec(1, ["a4-agent", "why", "no-such-run"], timeout=60).returncode == 66
    with following(trial, 1, "torchrun", "--", "/workload/hang.py", "sleeps") as (client, run):
        trial.until(0, " && ".join(f"test -e /mnt/sleeps-{rank}" for rank in range(RANKS)))
        said = trial.cluster.exec(3, ["a4-agent", "why"], timeout=120)
        told = trial.cluster.exec(2, ["a4-agent", "why", run, "--json"], timeout=120)
        agent(trial, 0, "cancel", run)
        client.wait(120)
    if "SHOW" in os.environ:
        Path(os.environ["SHOW"]).write_text(f"{said.stdout}\n{told.stdout}\n")
    assert said.returncode == 0, said
    assert f"rank {CULPRIT} (pod " in said.stdout
    assert all(len(line) <= 80 for line in said.stdout.splitlines())
    answer = json.loads(told.stdout)
    assert (answer["run"], answer["over"], answer["diagnosis"]["status"]) == (run, False, "hangs")
    over = trial.cluster.exec(1, ["a4-agent", "why", run], timeout=60)
    assert (over.returncode, over.stdout) == (0, f"{run} is over, and nothing was seen to hang in it\n")

"""Runs on formed clusters, and every way in which they end."""

from __future__ import annotations

import pytest

from tests.cluster.conftest import RUN_DIR, Start, Trial, all_codes
from tests.cluster.work import result


def test_connectivity(start: Start) -> None:
    trial = start(3, gpus_per_pod=2, arguments=("connectivity",))
    all_codes(trial, 0)
    found = result(trial)
    record = found["record"]
    assert found["verdict"]["code"] == 0 and record["mpirun"].startswith("4.")
    assert (record["finished"], len(record["pairs"])) == (list(range(6)), 3)
    assert all(pair["bandwidth_gb_s"] > 0 and pair["latency_us"] > 0 for pair in record["pairs"])
    log = trial.cluster.read(0, f"{RUN_DIR}/results/connectivity-test.log")
    assert "6 ranks on 3 pods (Open MPI 4." in log
    assert "6 ranks on 3 pods" in trial.cluster.logs(0, "out")


def test_a_script_that_is_killed_on_one_pod_ends_the_job(start: Start) -> None:
    trial = start(2, script='[ "$JOB_COMPLETION_INDEX" = 0 ] || kill -KILL $$')
    all_codes(trial, 137)
    for pod in range(2):
        end = trial.said(pod)
        assert (end["code"], end["origin"]) == (137, "workload")
        assert end["where"].startswith("pod 1, ")


LONG = ("connectivity", "--", "--repeats", "100000000")


def in_mpirun(trial: Trial) -> None:
    """Wait until the ranks of every pod have reported."""
    trial.until(0, f'grep -qs \'"step": "ranks"\' {RUN_DIR}/runs/*/record.jsonl')


def test_sigterm_during_mpirun(start: Start) -> None:
    trial = start(2, arguments=LONG)
    in_mpirun(trial)
    trial.cluster.signal(0, 15)
    all_codes(trial, 143)


@pytest.mark.faults
def test_a_killed_agent_during_mpirun(start: Start) -> None:
    trial = start(3, arguments=LONG)
    in_mpirun(trial)
    trial.kill_agent(2)
    codes = trial.codes()
    assert (codes[0], codes[1]) == (75, 75), trial.log()
    assert "pod 2" in trial.said(1)["where"] + trial.said(1)["why"]


def test_a_killed_sshd_comes_back(start: Start) -> None:
    trial = start(2, script="until test -e /tmp/go; do sleep 0.05; done")
    trial.until_event(1, "run-started")
    killed = trial.cluster.exec(1, ["bash", "-c", "kill -9 $(pgrep -f 'sshd.* -D -e' | head -1)"])
    assert killed.returncode == 0, killed
    name = trial.cluster.spec.pod_name(1)
    trial.until(0, f"ssh -o ConnectTimeout=5 {name} touch /tmp/go 2>/dev/null")
    trial.cluster.exec(0, ["touch", "/tmp/go"])
    all_codes(trial, 0)
    assert "is started again" in trial.log()

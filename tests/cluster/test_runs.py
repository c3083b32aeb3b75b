"""Runs on formed clusters, and every way in which they end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.paths import HOSTFILE, HOSTFILE_ONE_PER_NODE
from tests.cluster.conftest import RUN_DIR, Start, Trial, all_codes

FAULTS = pytest.mark.faults
MARK = "while true; do sleep 1; done"


def launch_of(kind: str, ompi5: Path, workload: str) -> dict[str, Any]:
    """ENTRYPOINT and PATH for the Open MPI of that major version."""
    if kind == "4":
        return {"arguments": (workload,)}
    path = f"{ompi5}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {
        "entrypoint": ("tini", "--", f"{ompi5}/bin/python", "-m", "agent", "run", workload),
        "env": {"PATH": path},
    }


def results(trial: Trial) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(trial.cluster.read(0, f"{RUN_DIR}/results/result.json"))
    return data


@pytest.mark.parametrize("kind", ["4", pytest.param("5", marks=FAULTS)])
def test_connectivity(start: Start, ompi5: Path, kind: str) -> None:
    trial = start(4, gpus_per_pod=2, **launch_of(kind, ompi5, "connectivity"))
    all_codes(trial, 0)
    result = results(trial)
    assert result["verdict"]["code"] == 0
    assert result["record"]["mpirun"].startswith(f"{kind}.")
    assert result["record"]["finished"] == list(range(8))
    assert len(result["record"]["pairs"]) == 4
    assert all(pair["bandwidth_gb_s"] > 0 and pair["latency_us"] > 0 for pair in result["record"]["pairs"])
    log = trial.cluster.read(0, f"{RUN_DIR}/results/connectivity-test.log")
    assert f"8 ranks on 4 pods (Open MPI {kind}." in log
    assert "8 ranks on 4 pods" in trial.cluster.logs(0, "out")


SCRIPT = """\
[ "$JOB_COMPLETION_INDEX" = {index} ] && {{ {what}; }}
exit 0
"""


@pytest.mark.parametrize(
    ("index", "what", "code"),
    [
        (0, "exit 7", 7),
        (2, "kill -KILL $$", 137),
        *(pytest.param(*case, marks=FAULTS) for case in ((2, "exit 255", 255), (0, "kill -SEGV $$", 139))),
    ],
)
def test_a_script_that_fails_on_one_pod_ends_the_job(start: Start, index: int, what: str, code: int) -> None:
    trial = start(3, script=SCRIPT.format(index=index, what=what))
    all_codes(trial, code)
    for pod in range(3):
        end = trial.said(pod)
        assert (end["code"], end["origin"]) == (code, "workload")
        assert end["where"].startswith(f"pod {index}, ")


def test_a_script_gets_what_the_plan_says(start: Start) -> None:
    script = """
printf '%s|' "$A4_NODE_RANK" "$NODE_RANK" "$MASTER_ADDR" "$MASTER_PORT" "$A4_HOSTFILE" "$A4_HOSTFILE_1PERNODE"
printf '%s' "$HOSTILE" | sha256sum
test -s "$A4_HOSTFILE" && test -s "$A4_HOSTFILE_1PERNODE"
"""
    hostile = "a b'c\"d$(touch /tmp/owned)`x`\\;|&\n\t=é \x01"
    trial = start(3, script=script, env={"HOSTILE": hostile})
    all_codes(trial, 0)
    import hashlib

    digest = hashlib.sha256(hostile.encode()).hexdigest()
    order = [line.split()[1] for line in trial.cluster.read(0, "/tmp/job-worker-rank-order.txt").splitlines()]
    for index in range(3):
        rank = order.index(trial.cluster.spec.pod_name(index))
        *given, hostfile, one_per_node, found = trial.cluster.logs(index, "out").rstrip(" -\n").split("|")
        assert given == [str(rank), str(rank), order[0], "6002"] and found == digest
        for path, whole in ((hostfile, HOSTFILE), (one_per_node, HOSTFILE_ONE_PER_NODE)):
            assert trial.cluster.read(index, path) == trial.cluster.read(index, whole)


def test_no_script_is_said_on_every_pod(start: Start) -> None:
    trial = start(2, arguments=("script",))
    all_codes(trial, 66)
    assert "no task script is mounted" in trial.said(1)["what"]


def test_sigterm_to_the_coordinator_during_discovery(start: Start) -> None:
    trial = start(3, missing=frozenset({2}), arguments=("none",))
    trial.until_event(1, "coordinator-connected")
    trial.cluster.signal(0, 15)
    all_codes(trial, 143)


@FAULTS
def test_sigterm_to_a_waiting_worker(start: Start) -> None:
    trial = start(3, missing=frozenset({2}), arguments=("none",))
    trial.until_event(1, "coordinator-connected")
    trial.cluster.signal(1, 15)
    assert trial.codes() == {0: 75, 1: 143}


def test_every_pod_has_time_to_save_when_all_are_told_to_end(start: Start) -> None:
    save = "trap 'sleep 1.5; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
    trial = start(3, script=save)
    for index in range(3):
        trial.until_event(index, "run-started")
    while not all("ready" in trial.cluster.logs(index) for index in range(3)):
        trial.until(0, "true")
    trial.cluster.terminate()
    all_codes(trial, 143)
    assert ["saved" in trial.cluster.logs(index) for index in range(3)] == [True] * 3


def test_sigterm_to_one_worker_during_a_run(start: Start) -> None:
    trial = start(3, script=MARK)
    trial.until_event(2, "run-started")
    trial.cluster.signal(2, 15)
    assert trial.codes() == {0: 75, 1: 75, 2: 143}, trial.log()
    assert trial.said(1)["where"].startswith("pod 2, ")


LONG = ("connectivity", "--", "--repeats", "100000000")


def in_mpirun(trial: Trial) -> None:
    """Wait until the ranks of every pod have reported."""
    trial.until(0, f'grep -qs \'"step": "ranks"\' {RUN_DIR}/runs/*/record.jsonl')


def test_sigterm_during_mpirun(start: Start) -> None:
    trial = start(3, arguments=LONG)
    in_mpirun(trial)
    trial.cluster.signal(0, 15)
    all_codes(trial, 143)


@pytest.mark.parametrize(
    ("kind", "victim"),
    [
        ("5", "orted|prted"),
        ("4", "entrypoints/connectivity.py"),
        pytest.param("4", "orted|prted", marks=FAULTS),
        pytest.param("5", "entrypoints/connectivity.py", marks=FAULTS),
    ],
)
def test_a_killed_daemon_or_rank_is_never_success(start: Start, ompi5: Path, kind: str, victim: str) -> None:
    launch = launch_of(kind, ompi5, "connectivity")
    last = "entrypoint" if kind == "5" else "arguments"
    trial = start(3, **{**launch, last: (*launch[last], *LONG[1:])})
    in_mpirun(trial)
    killed = trial.cluster.exec(1, ["pkill", "-KILL", "-f", victim])
    assert killed.returncode == 0
    # With Open MPI 5 another rank may notice the closed connection before mpirun hears of the death: 14.
    wanted = {75} if victim.startswith("orted") else {137} if kind == "4" else {137, 14}
    codes = set(trial.codes().values())
    assert len(codes) == 1, trial.log()
    assert codes <= wanted, trial.log()
    assert "connectivity is good" not in trial.log()


@FAULTS
@pytest.mark.parametrize("index", [0, 2])
def test_a_killed_agent_ends_every_pod(start: Start, index: int) -> None:
    trial = start(3, script=MARK)
    trial.until_event(2, "run-started")
    trial.until_event(0, "run-started")
    trial.kill_agent(index)
    codes = trial.codes()
    assert codes[index] == 137
    assert {code for pod, code in codes.items() if pod != index} == {75}, trial.log()


@FAULTS
def test_a_killed_agent_during_mpirun(start: Start) -> None:
    trial = start(3, arguments=LONG)
    in_mpirun(trial)
    trial.kill_agent(2)
    codes = trial.codes()
    assert (codes[0], codes[1]) == (75, 75), trial.log()
    assert "pod 2" in trial.said(1)["where"] + trial.said(1)["why"]


@FAULTS
def test_a_cut_link_ends_both_sides(start: Start) -> None:
    trial = start(3, script=MARK)
    trial.until_event(1, "run-started")
    trial.cluster.link(1, up=False)
    all_codes(trial, 75)


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

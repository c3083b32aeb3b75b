"""`find-slow` on real pods with data NICs: slow links, over TCP and gloo, a stopped child, halves that gather."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.local.spec import DATA_NIC
from tests.cluster.conftest import END_SECONDS, Start, Trial, torch
from tests.cluster.work import agent, following, read_until, result_of, sleeping

__all__ = ["torch"]

NIC = DATA_NIC.name
RATE = "40mbit"
"""Slow enough for the links, and not the machine, to be the limit."""


def shaped(start: Start, pods: int, rate: str = RATE, **env: str) -> Trial:
    """Pods with equal links: four blocks, or two of up to 8 pods, of two sub-blocks each."""
    block = pods // (4 if pods > 8 else 2)
    places = {pod: ("c", f"b{pod // block}", f"s{2 * pod // block}", f"h{pod}") for pod in range(pods)}
    trial = sleeping(start, pods, places=places, data_nic=True, env=env)
    for pod in range(pods):
        trial.cluster.slow_link(pod, rate, NIC)
    return trial


def states(found: dict[str, Any]) -> dict[str, set[int]]:
    """State → pods."""
    told: dict[str, set[int]] = {}
    for one in found["findings"]:
        told.setdefault(one["state"], set()).add(one["pod"])
    return told


def test_a_link_at_half_rate(start: Start) -> None:
    trial = shaped(start, 8)
    healthy = agent(trial, 0, "run", "find-slow")
    assert (healthy.returncode, states(result_of(trial, healthy))) == (0, {"ok": set(range(8))}), healthy.stdout

    trial.cluster.slow_link(3, "20mbit", NIC)
    done = agent(trial, 0, "run", "find-slow")
    found = result_of(trial, done)
    assert done.returncode == 65 and states(found) == {"bad": {3}, "ok": {0, 1, 2, 4, 5, 6, 7}}, done.stdout
    assert "a4-agent run --exclude 3 " in done.stdout

    without = agent(trial, 0, "run", "--exclude", "3", "find-slow")
    assert without.returncode == 0, without.stdout


PARENT = "[f]ind-slow-torch.py"
"""So that it does not find itself."""
GLOO = ("run", "find-slow", "--", "--over", "gloo")


def signal_child(trial: Trial, pod: int, name: str) -> None:
    """To the first child that measures over torch, as soon as there is one."""
    child = f"grep -ls {PARENT} $(printf '/proc/%s/cmdline ' $(cat /proc/$parent/task/*/children))"
    script = f"""for i in $(seq 3000); do
        for parent in $(grep -ls {PARENT} /proc/[0-9]*/cmdline | cut -d / -f 3); do
            found=$({child} 2>/dev/null | head -n 1 | cut -d / -f 3)
            [ -z "$found" ] || exec kill -{name} $found
        done
        sleep 0.02
    done
    exit 1"""
    done = trial.cluster.exec(pod, ["bash", "-c", script], timeout=END_SECONDS)
    assert done.returncode == 0, done


def test_a_link_at_half_rate_over_gloo(start: Start, torch: Path) -> None:
    """Four pods, all pairs; then all of them gather, and the rest without the slow one."""
    trial = shaped(start, 4, A4_PYTHON=str(torch))
    trial.cluster.slow_link(3, "20mbit", NIC)
    done = agent(trial, 0, *GLOO)
    found = result_of(trial, done)
    assert done.returncode == 65 and states(found) == {"bad": {3}, "ok": {0, 1, 2}}, done
    assert found["record"]["over"] == "gloo" and found["versions"]["torch"]
    assert "all_gather over 4 pods: " in done.stdout and "all_gather over 3 pods: " in done.stdout, done.stdout

    trial.cluster.slow_link(3, RATE, NIC)
    healthy = agent(trial, 0, *GLOO)
    assert (healthy.returncode, states(result_of(trial, healthy))) == (0, {"ok": {0, 1, 2, 3}}), healthy


def test_a_child_that_is_stopped_holds_up_one_round(start: Start, torch: Path) -> None:
    """Its parent kills it at its deadline; pod and partner go on to the next round."""
    trial = shaped(start, 4, A4_PYTHON=str(torch))
    with following(trial, 0, *GLOO) as (run, _):
        read_until(run.stdout, b"over gloo\n")
        signal_child(trial, 2, "STOP")
        printed = run.stdout.read().decode()
        assert run.wait() == 0, printed
    assert "round 1: 2 pairs, 1 timed out\n" in printed and "round 2: 2 pairs\n" in printed, printed


@pytest.mark.faults
def test_an_all_gather_that_fails_between_two_pods(start: Start, torch: Path) -> None:
    """They meet in no round of pairs: halves that gather find them."""
    trial = shaped(start, 8, A4_PYTHON=str(torch))
    trial.cluster.slow_way(0, [5], nic=NIC)
    trial.cluster.slow_way(5, [0], nic=NIC)
    done = agent(trial, 0, *GLOO)
    found = result_of(trial, done)
    assert [0, 5] not in [pair["pods"] for pair in found["record"]["pairs"]], "choose other pods"
    assert done.returncode == 65 and states(found) == {"ok": set(range(8))}, done.stdout
    assert "  all_gather over pods 0,5 did not finish, though all pairs that were measured did\n" in done.stdout


def test_torch_that_is_not_there_is_said(start: Start) -> None:
    trial = sleeping(start, 2, env={"A4_REPORT": "false", "A4_PYTHON": "/usr/bin/no-python"})
    done = agent(trial, 0, *GLOO)
    assert done.returncode == 66 and "/usr/bin/no-python cannot be started" in done.stderr, done.stderr + done.stdout

"""`find-slow` on real pods with data NICs: slow links, over TCP and gloo, pods that gather."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agent.workbench.local.spec import DATA_NIC
from tests.cluster.conftest import Start, Trial, starting
from tests.cluster.work import agent, result_of, sleeping
from tests.torch_environment import TORCH_PYTHON

NIC = DATA_NIC.name
RATE, HALF = "100mbit", "50mbit"
"""Slow enough for the links, and not the machine, to be the limit."""
TCP = ("run", "find-slow", "--", "--seconds", "0.5")
GLOO = (*TCP, "--over", "gloo")


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


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    with starting() as start:
        yield shaped(start, 4, A4_PYTHON=str(TORCH_PYTHON))


@contextmanager
def half_rate(trial: Trial, pod: int) -> Iterator[None]:
    trial.cluster.slow_link(pod, HALF, NIC)
    try:
        yield
    finally:
        trial.cluster.slow_link(pod, RATE, NIC)


def test_healthy_pods_and_a_link_at_half_rate(trial: Trial) -> None:
    healthy = agent(trial, 0, *TCP)
    assert (healthy.returncode, states(result_of(trial, healthy))) == (0, {"ok": {0, 1, 2, 3}}), healthy.stdout
    with half_rate(trial, 3):
        done = agent(trial, 0, *TCP)
    found = result_of(trial, done)
    assert done.returncode == 65 and states(found) == {"bad": {3}, "ok": {0, 1, 2}}, done.stdout
    assert "a4-agent run --exclude 3 " in done.stdout


def test_a_link_at_half_rate_over_gloo(trial: Trial) -> None:
    """When all pairs were measured all pods gather, and then the rest without the slow one."""
    with half_rate(trial, 3):
        done = agent(trial, 0, *GLOO)
    found = result_of(trial, done)
    assert done.returncode == 65 and states(found) == {"bad": {3}, "ok": {0, 1, 2}}, done.stdout
    assert found["record"]["over"] == "gloo" and found["versions"]["torch"]
    assert "all_gather over 4 pods: " in done.stdout and "all_gather over 3 pods: " in done.stdout, done.stdout


def test_torch_that_is_not_there_is_said(trial: Trial) -> None:
    done = agent(trial, 0, *GLOO, env={"A4_PYTHON": "/usr/bin/no-python"})
    assert done.returncode == 66 and "/usr/bin/no-python cannot be started" in done.stderr, done.stderr + done.stdout

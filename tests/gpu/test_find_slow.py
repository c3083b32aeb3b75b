"""`find-slow` over NCCL: two pods and four with a GPU each, and two pods with two, whose rails are measured."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from agent.paths import shipped
from tests.cluster.conftest import END_SECONDS, Trial
from tests.cluster.work import following, read_until, result_of
from tests.gpu.conftest import GIVEN, RUN_SECONDS, Cluster, agent

NETWORK_ONLY = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
BUSY = """
import torch
one = torch.ones((8192, 8192), dtype=torch.bfloat16, device="cuda")
print("busy", flush=True)
while True:
    for _ in range(20):
        one @ one
    torch.cuda.synchronize()
"""
HELD = Path(__file__).parent / "programs" / "held_memory.py"
KEPT = os.environ.get("A4_TEST_KEEP_RESULTS", "")
"""Directory in which the results stay."""


def kept(trial: Trial, done: subprocess.CompletedProcess[str], name: str) -> dict[str, Any]:
    found = result_of(trial, done)
    if KEPT:
        (Path(KEPT) / f"find-slow-{name}.json").write_text(json.dumps(found))
        (Path(KEPT) / f"find-slow-{name}.txt").write_text(done.stdout + done.stderr)
    return found


def test_two_pods_over_nccl(cluster: Cluster) -> None:
    trial = cluster(2, env={**NETWORK_ONLY, "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "/tmp/nccl-%p.log"})
    done = agent(trial, 0, "run", "find-slow")
    found = kept(trial, done, "healthy")
    assert done.returncode == 0, done
    assert found["record"]["over"] == "nccl" and found["record"]["pairs"][0]["MB/s"] > 0
    assert found["versions"]["nccl"]
    gpus = next(one for one in found["tables"] if one["name"] == "find-slow-gpus")
    assert [row[:2] for row in gpus["rows"]] == [[0, 0], [1, 0]] and all(min(row[2:]) > 1 for row in gpus["rows"])
    assert "all_gather over 2 pods: " in done.stdout and "failed" not in done.stdout
    notes = trial.cluster.exec(0, ["bash", "-c", "cat /tmp/nccl-*.log"]).stdout
    assert "via NET/Socket" in notes and "via P2P" not in notes, notes


def test_a_gpu_that_is_busy_is_named(cluster: Cluster, torch_python: Path) -> None:
    trial = cluster(2, env=NETWORK_ONLY)
    with trial.cluster.popen(1, [str(torch_python), "-c", BUSY]) as busy:
        read_until(busy.stdout, b"busy\n")
        for number in range(5):
            done = agent(trial, 0, "run", "find-slow", "--", "--seconds", "0.5")
            found = kept(trial, done, f"busy-{number}")
            products = [one["pod"] for one in found["findings"] if one["check"] == "product in bf16"]
            assert (done.returncode, products) == (65, [1]), (number, done)


PARENT = "[f]ind-slow-torch.py"
"""So that it does not find itself."""
KILL = f"""for i in $(seq 3000); do
    for parent in $(grep -ls {PARENT} /proc/[0-9]*/cmdline | cut -d / -f 3); do
        found=$(grep -ls {PARENT} $(printf '/proc/%s/cmdline ' $(cat /proc/$parent/task/*/children)) 2>/dev/null |
            head -n 1 | cut -d / -f 3)
        [ -z "$found" ] || exec kill -KILL $found
    done
    sleep 0.02
done
exit 1"""
"""The first child that measures over torch, as soon as there is one."""


def test_a_killed_child_and_its_partner_go_on(cluster: Cluster) -> None:
    trial = cluster(2, env=NETWORK_ONLY)
    with following(trial, 0, "run", "find-slow", "--", "--seconds", "5") as (run, _):
        read_until(run.stdout, b"each GPU alone: 2 GPUs\n")
        killed = trial.cluster.exec(1, ["bash", "-c", KILL], timeout=END_SECONDS)
        assert killed.returncode == 0, killed
        printed = run.stdout.read().decode()
        assert run.wait(RUN_SECONDS) == 0, printed
    assert "round 1: 1 pair, 1 timed out\nround 2: 1 pair\n" in printed, printed


def test_memory_is_free_when_a_child_is_gone(torch_python: Path) -> None:
    """As soon as its parent goes on, which is before the next round."""
    argv = [torch_python, HELD, Path(shipped("entrypoints", "find-slow.py")).parent]
    done = subprocess.run(argv, env={**os.environ, **GIVEN}, capture_output=True, text=True, timeout=RUN_SECONDS)
    assert done.returncode == 0, done
    before, held, after = json.loads(done.stdout)
    assert held == 8 << 30 and before - after < 64 << 20, done


def test_rails_nvlink_and_loopback(cluster: Cluster, torch_python: Path) -> None:
    """Two pods with two GPUs each; then another process keeps the second GPU of the second pod busy."""
    trial = cluster(2, 2)
    healthy = agent(trial, 0, "run", "find-slow")
    found = kept(trial, healthy, "rails")
    assert healthy.returncode == 0, healthy
    assert found["record"]["rails"] == 2 and {one["rail"] for one in found["record"]["pairs"]} == {0, 1}
    assert all(one["MB/s"] > 0 for one in found["record"]["pairs"]), found["record"]
    tables = {one["name"]: one["rows"] for one in found["tables"]}
    assert [pod for pod, speed in tables["find-slow-nvlink"] if speed > 1] == [0, 1], tables
    assert [row[:2] for row in tables["find-slow-loopback"] if row[2] > 1] == [[0, "0-1"], [1, "0-1"]], tables
    assert "all_gather over 2 pods: " in healthy.stdout and "failed" not in healthy.stdout, healthy.stdout

    with trial.cluster.popen(1, ["env", "CUDA_VISIBLE_DEVICES=1", str(torch_python), "-c", BUSY]) as busy:
        read_until(busy.stdout, b"busy\n")
        done = agent(trial, 0, "run", "find-slow", "--", "--seconds", "0.5")
    found = kept(trial, done, "rails-busy")
    assert done.returncode == 65 and {(pod, device) for pod, _, device in bad(found)} == {(1, "GPU 1")}, done


def test_a_slow_link_and_a_busy_gpu_are_told_apart(cluster: Cluster, torch_python: Path) -> None:
    """Four pods with a GPU each, whose links are the limit."""
    trial = cluster(4)
    for pod in range(4):
        trial.cluster.slow_link(pod, "400mbit")
    healthy = agent(trial, 0, "run", "find-slow")
    found = kept(trial, healthy, "four")
    assert healthy.returncode == 0 and not bad(found), healthy

    trial.cluster.slow_link(2, "200mbit")
    slow_link = agent(trial, 0, "run", "find-slow")
    found = kept(trial, slow_link, "four-link")
    assert slow_link.returncode == 65 and bad(found) == [(2, "NCCL to other pods", "network")], slow_link

    with trial.cluster.popen(1, [str(torch_python), "-c", BUSY]) as busy:
        read_until(busy.stdout, b"busy\n")
        both = agent(trial, 0, "run", "find-slow")
    found = kept(trial, both, "four-both")
    assert both.returncode == 65 and (2, "NCCL to other pods", "network") in bad(found), both
    assert (1, "product in bf16", "GPU 0") in bad(found) and {pod for pod, *_ in bad(found)} == {1, 2}, both


def bad(found: dict[str, Any]) -> list[tuple[int, str, str]]:
    """(pod, check, device) of each bad finding."""
    return [(one["pod"], one["check"], one["device"]) for one in found["findings"] if one["state"] == "bad"]

"""`find-slow` over NCCL: two pods with a GPU each, and two processes that share two GPUs as if they were two pods."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.launch import packed
from agent.paths import package_home, shipped
from tests.cluster.conftest import Trial
from tests.cluster.test_find_slow import signal_child
from tests.cluster.work import following, read_until, result_of
from tests.gpu.conftest import GIVEN, GPUS, MULTICAST_OFF, RUN_SECONDS, Cluster, agent

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


def test_a_killed_child_and_its_partner_go_on(cluster: Cluster) -> None:
    trial = cluster(2, env=NETWORK_ONLY)
    with following(trial, 0, "run", "find-slow", "--", "--seconds", "5") as (run, _):
        read_until(run.stdout, b"each GPU alone: 2 GPUs\n")
        signal_child(trial, 1, "KILL")
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


@pytest.mark.skipif(GPUS < 2, reason="one GPU: no NVLink, and no rails")
def test_rails_nvlink_and_loopback(torch_python: Path, tmp_path: Path) -> None:
    """Both processes see both GPUs: NCCL takes them for two hosts, as it is told. Ranks that share GPUs may block each
    other, which NCCL's guide says: the all_gather of all four did so two times in eight, and is not looked at here."""
    common = ["--nodes", "2", "--lead", "127.0.0.1", "--port", "7713", "--token", "t", "--interface", "lo"]
    common += ["--seconds", "0.5", "--over", "nccl", "--torch", str(torch_python)]
    decides = json.dumps([sys.executable, "-Es", "-m", "agent.workloads.find_slow", packed([("a",), ("b",)])])
    record = tmp_path / "record.jsonl"
    begun = []
    for rank in (0, 1):
        argv = [sys.executable, "-ES", shipped("entrypoints", "find-slow.py"), "--rank", str(rank), *common]
        env = {**os.environ, **MULTICAST_OFF, **GIVEN, "NCCL_HOSTID": f"host-{rank}", "NCCL_SOCKET_IFNAME": "lo"}
        env |= {"A4_RECORD": str(record)} if not rank else {}
        begun.append(subprocess.Popen([*argv, *([] if rank else ["--next", decides])], env=env, cwd=package_home()))
    codes = [one.wait(RUN_SECONDS) for one in begun]
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    if KEPT:
        (Path(KEPT) / "find-slow-rails.jsonl").write_text(record.read_text())
    found = {one["step"]: one for one in lines}
    assert codes == [0, 0], lines
    assert found["over"]["rails"] == 2 and len(found["gpus"]["speeds"]) == 4
    assert all(speed > 1 for _, speed in found["nvlink"]["speeds"])
    assert len(found["loopback"]["speeds"]) == 4 and all(speed > 1 for *_, speed in found["loopback"]["speeds"])
    assert [(rail, speed > 0) for _, _, speed, rail in found["round"]["pairs"]] == [(0, True), (1, True)]

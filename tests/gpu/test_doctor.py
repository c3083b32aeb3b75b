"""`a4-agent doctor` on real GPUs: nothing false, idle and under load, and what is wrong is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.paths import shipped
from agent.workbench.local.dealt_gpus import find_gpus
from tests.cluster.conftest import RUN_DIR, Trial
from tests.cluster.work import following, read_until
from tests.gpu.conftest import RUN_SECONDS, Cluster, agent

KEPT = os.environ.get("A4_TEST_KEEP_RESULTS", "")
"""Directory in which what doctor says stays."""
BURN = """
import torch
held = [torch.ones((4096, 4096), device=f"cuda:{index}") for index in range(torch.cuda.device_count())]
for one in held:
    one @ one
torch.cuda.synchronize()
print("busy", flush=True)
while True:
    for one in held:
        one @ one
    torch.cuda.synchronize()
"""
COMPUTING = ("GPU computes", "NCCL's diagnostics")
MAY_BE_BLIND = ("XIDs", "NCCL's diagnostics")
"""The kernel log is not for every container, and NCCL has diagnostics since 2.31."""


def doctor(trial: Trial, name: str, *options: str) -> tuple[int, list[dict[str, Any]]]:
    """Its exit code and findings; those that are not ok are shown by a failing test."""
    done = agent(trial, 0, "doctor", "--json", *options)
    assert done.returncode in (0, 65), done
    if KEPT:
        Path(KEPT, f"doctor-{name}.json").write_text(done.stdout)
        Path(KEPT, f"doctor-{name}.txt").write_text(agent(trial, 0, "doctor", *options).stdout)
    return done.returncode, not_ok(done.stdout)


def not_ok(text: str) -> list[dict[str, Any]]:
    """But for the version of NCCL, which is what it is."""
    found = json.loads(text)["findings"]
    return [one for one in found if one["state"] != "ok" and (one["check"], one["state"]) != ("NCCL version", "bad")]


@pytest.fixture
def trial(cluster: Cluster) -> Iterator[Trial]:
    """One pod with all GPUs: then no other pod's are in what nvidia-smi says."""
    yield cluster(1, len(find_gpus().numbered))


@contextmanager
def small_shm(trial: Trial) -> Iterator[None]:
    """In the pod's own mount namespace: nothing of the machine changes."""
    for size in ("64m", "16g"):
        done = trial.cluster.exec(0, ["mount", "-o", f"remount,size={size}", "/dev/shm"])
        assert done.returncode == 0, done
        if size == "64m":
            yield


def test_nothing_is_found_where_nothing_is_wrong(trial: Trial, torch_python: Path) -> None:
    code, idle = doctor(trial, "idle")
    assert code == 0 and {(one["check"], one["state"]) for one in idle} <= {(name, "unknown") for name in MAY_BE_BLIND}

    with following(trial, 0, "run", "script", "--", str(torch_python), "-c", BURN) as (run, _):
        read_until(run.stdout, b"busy\n")
        code, load = doctor(trial, "load")
        assert agent(trial, 0, "cancel").returncode == 0
        run.wait()
    blind = {(name, "unknown") for name in (*MAY_BE_BLIND, *COMPUTING)}
    assert code == 0 and {(one["check"], one["state"]) for one in load} <= blind


def test_this_machine_itself_has_a_kernel_log(torch_python: Path) -> None:
    """Outside of pods: XIDs are looked for in what the driver has really written."""
    environ = {**os.environ, "GPUS_PER_NODE": str(len(find_gpus().numbered)), "A4_PYTHON": str(torch_python)}
    done = subprocess.run(
        [sys.executable, "-m", "agent", "doctor", "--here", "--json"],
        capture_output=True, text=True, timeout=RUN_SECONDS, env=environ, cwd=Path(shipped("entrypoints", "")).parent,
    )  # fmt: skip
    if KEPT:
        Path(KEPT, "doctor-here.json").write_text(done.stdout)
    found = {one["check"]: one["state"] for one in not_ok(done.stdout)}
    assert found in ({}, {"NCCL's diagnostics": "unknown"}) and done.returncode == 0, done


def test_what_is_wrong_is_found(trial: Trial, torch_python: Path) -> None:
    with small_shm(trial):
        assert ("/dev/shm", "64 MiB") in {(one["check"], one["value"]) for one in doctor(trial, "shm")[1]}

    foreign = subprocess.Popen([torch_python, "-c", BURN], stdout=subprocess.PIPE)
    try:
        assert foreign.stdout is not None
        read_until(foreign.stdout, b"busy\n")
        code, found = doctor(trial, "foreign")
    finally:
        foreign.kill()
        foreign.communicate()
    bad = [one for one in found if one["state"] == "bad"]
    assert code == 0 and {(one["check"], one["severity"]) for one in bad} == {("GPU processes", "information")}
    assert len(bad) == len(find_gpus().numbered)


def test_limits_of_one_pod_are_found(cluster: Cluster) -> None:
    trial = cluster(2, 1)
    lock = trial.cluster.read(1, f"{RUN_DIR}/lock")
    pid = lock.split()[1]
    done = trial.cluster.exec(1, ["prlimit", "--pid", pid, "--nofile=2048:2048", "--memlock=65536:65536"])
    assert done.returncode == 0, done
    found = {one["check"]: one for one in doctor(trial, "limits")[1] if one["state"] == "bad"}
    assert {"nofile", "memlock"} <= found.keys() and {found[name]["pod"] for name in ("nofile", "memlock")} == {1}


def test_the_ranks_of_nccls_probe_meet_and_leave(torch_python: Path, tmp_path: Path) -> None:
    """With any NCCL; one that is old prints no diagnostics."""
    if len(find_gpus().numbered) < 2:
        pytest.skip("NCCL's probe takes two GPUs")
    script = shipped("entrypoints", "probe-nccl.py")
    code = f"import runpy; print(repr(runpy.run_path({script!r})['both']({str(tmp_path / 'meet')!r})))"
    environ = {**os.environ, "PYTHONPATH": os.path.dirname(script)}
    done = subprocess.run([torch_python, "-c", code], capture_output=True, text=True, timeout=RUN_SECONDS, env=environ)
    assert (done.returncode, done.stdout.strip().rpartition("\n")[2]) == (0, "''"), done

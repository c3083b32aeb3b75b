"""Clusters on this machine whose pods have real GPUs. Run by `make test-gpu` alone."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.workbench.local.dealt_gpus import find_gpus, gpu_variables
from tests.cluster.conftest import Start, Trial, start
from tests.cluster.work import AGENT, sleeping
from tests.torch_environment import TORCH_PYTHON

__all__ = ["start"]

GPUS = len(find_gpus().numbered)
RUN_SECONDS = 240.0
"""Guards against hanging: torch and CUDA alone can take half a minute to load."""
MULTICAST_OFF = {"NCCL_NVLS_ENABLE": "0", "NVSHMEM_DISABLE_NVLS": "1", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
"""NVLink multicast is of all who share a switch: with a part of the GPUs it can put the rest out of service."""
GIVEN = gpu_variables(os.environ)
"""What this machine says to its GPUs' programs, before the tests' own environment is cleared of it."""
NAMED = "A4_TEST_TORCH" in os.environ

Cluster = Callable[..., Trial]


@pytest.fixture(scope="session", autouse=True)
def gpus_there() -> None:
    if not GPUS:
        pytest.fail("this machine has no GPU (no /dev/nvidia0): nothing here can be tested", pytrace=False)


@pytest.fixture(scope="session")
def torch_python() -> Path:
    """The workload's Python: A4_TEST_TORCH's, else this one, else that of the set-up."""
    if not NAMED and importlib.util.find_spec("torch"):
        return Path(sys.executable)
    assert TORCH_PYTHON.exists(), (
        "no Python with torch: make setup, or name an environment that has it by A4_TEST_TORCH"
    )
    return TORCH_PYTHON


@pytest.fixture
def cluster(start: Start, torch_python: Path) -> Iterator[Cluster]:
    """`cluster(pods, gpus_per_pod, …)`: formed, asleep, each pod with its own GPUs. Skips where they are too few."""

    def make(pods: int, gpus_per_pod: int = 1, **more: Any) -> Trial:
        if pods * gpus_per_pod > GPUS:
            pytest.skip(f"{pods} pods with {gpus_per_pod} GPUs each: this machine has {GPUS}")
        env = {**MULTICAST_OFF, **GIVEN, "A4_PYTHON": str(torch_python), **more.pop("env", {})}
        return sleeping(start, pods, gpus_per_pod=gpus_per_pod, real_gpus=True, env=env, **more)

    yield make


def agent(trial: Trial, index: int, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """`a4-agent WORDS` typed in a pod, to its end."""
    return trial.cluster.exec(index, [*AGENT, *words], timeout=RUN_SECONDS, **more)


def python_in(trial: Trial, index: int, python: Path, code: str) -> str:
    """What a Python prints in a pod."""
    done = trial.cluster.exec(index, [str(python), "-c", code], timeout=RUN_SECONDS)
    assert done.returncode == 0, done
    return done.stdout.strip()

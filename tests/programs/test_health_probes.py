"""What `doctor` starts under the workload's Python, with real torch and without GPUs."""

from __future__ import annotations

import os

from agent.clinic.probes.gpu_probe import probe_nccl, probe_one
from tests.programs.conftest import END_SECONDS
from tests.torch_environment import TORCH_PYTHON


def environ() -> dict[str, str]:
    return {**os.environ, "A4_PYTHON": str(TORCH_PYTHON), "CUDA_VISIBLE_DEVICES": ""}


def test_a_product_on_the_cpu() -> None:
    assert probe_one(environ(), "cpu", END_SECONDS) == {"index": "cpu", "problem": "", "unknown": ""}


def test_nccl_is_not_asked_without_two_gpus() -> None:
    found = probe_nccl(environ(), "", END_SECONDS)
    assert found["output"] == "" and found["unknown"].endswith("finds 0 GPUs, and it takes 2")

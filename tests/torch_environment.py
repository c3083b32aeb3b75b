"""The environment that has torch: that of the set-up, or the directory that A4_TEST_TORCH names."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

from agent.clinic.sources.recorder import SERVED_SINCE

# Read when the tests are collected: later, no variable of the agent is left in the environment.
TORCH = Path(os.environ.get("A4_TEST_TORCH") or Path(__file__).resolve().parents[1] / ".venv-torch")
TORCH_PYTHON = TORCH / "bin" / "python"


@cache
def torch_release() -> tuple[int, int]:
    """2, 13. torch itself is not imported."""
    code = "from importlib.metadata import version; print(version('torch'))"
    told = subprocess.run([TORCH_PYTHON, "-c", code], check=True, capture_output=True, text=True).stdout
    major, minor = told.split(".")[:2]
    return int(major), int(minor)


def is_served() -> bool:
    """It has a server in its ranks, and gloo records operations; torch 2.4 has neither."""
    return torch_release() >= SERVED_SINCE


def own_lines(printed: str) -> list[str]:
    """What a program has printed, without the lines in which gloo of torch 2.10 and older says that it is connected."""
    return [line for line in printed.splitlines() if not line.startswith("[Gloo] ")]

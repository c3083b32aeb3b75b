"""The environment that has torch: that of the set-up, or the directory that A4_TEST_TORCH names."""

from __future__ import annotations

import os
from pathlib import Path

# Read when the tests are collected: later, no variable of the agent is left in the environment.
TORCH = Path(os.environ.get("A4_TEST_TORCH") or Path(__file__).resolve().parents[1] / ".venv-torch")
TORCH_PYTHON = TORCH / "bin" / "python"


def own_lines(printed: str) -> list[str]:
    """What a program has printed, without the lines in which gloo of torch 2.10 and older says that it is connected."""
    return [line for line in printed.splitlines() if not line.startswith("[Gloo] ")]

"""Rank programs for real: torchrun from .venv-torch on this machine, gloo between the ranks."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Read when the tests are collected: later, no variable of the agent is left in the environment.
TORCH = Path(os.environ.get("A4_TEST_TORCH", ROOT / ".venv-torch"))
TOKEN = "token-of-this-pod"
END_SECONDS = 110.0
"""Guards against hanging, before pytest's own limit does."""


@dataclass(frozen=True)
class Done:
    """How a torchrun ended."""

    code: int
    out: str
    err: str
    record: list[dict[str, Any]] = field(default_factory=list)
    """The lines that rank 0 wrote."""
    errors: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Rank → its error file, as far as there is one."""

    def steps(self, step: str) -> list[dict[str, Any]]:
        return [line for line in self.record if line["step"] == step]

    def step(self, step: str) -> dict[str, Any]:
        """The one line of that step."""
        (line,) = self.steps(step)
        return line


class Torchrun(Protocol):
    def __call__(
        self, program: str, ranks: int, *args: str, env: Mapping[str, str] | None = None, record: bool = True
    ) -> Done: ...


@pytest.fixture
def torchrun(tmp_path: Path) -> Torchrun:
    """`torchrun("ddp.py", 2, "--steps", "3", env={…})` runs a program of entrypoints/ on so many local ranks.

    env: what is added to the environment; record=False: the way people start it by hand, without any A4_ name.
    """
    if not (TORCH / "bin" / "torchrun").exists():
        why = f"no torchrun in {TORCH}: make setup, or name an environment that has it by A4_TEST_TORCH"
        pytest.fail(why, pytrace=False)
    count = 0

    def run(program: str, ranks: int, *args: str, env: Mapping[str, str] | None = None, record: bool = True) -> Done:
        nonlocal count
        count += 1
        home = tmp_path / f"run-{count}"
        home.mkdir()
        argv = [str(TORCH / "bin" / "torchrun"), "--standalone", "--local-addr", "127.0.0.1"]
        argv += ["--nproc-per-node", str(ranks), "--log-dir", str(home / "log")]
        argv += [str(ROOT / "entrypoints" / program), *args]
        code, out, err = ended(argv, {**environment(home, record), **(env or {})})
        return Done(code, out, err, read_record(home), read_errors(home))

    return run


def environment(home: Path, record: bool) -> dict[str, str]:
    """What the agent would give, or a person's shell."""
    (home / "token").write_text(TOKEN + "\n")
    ours = {"A4_TOKEN_FILE": str(home / "token"), "A4_RECORD": str(home / "record")}
    return {**os.environ, "OMP_NUM_THREADS": "1", **(ours if record else {})}


def ended(argv: list[str], env: dict[str, str]) -> tuple[int, str, str]:
    """Exit status, stdout and stderr; fails the test when it hangs."""
    process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = process.communicate(timeout=END_SECONDS)
    except subprocess.TimeoutExpired:
        process.terminate()  # torchrun ends its ranks
        out, err = process.communicate()
        pytest.fail(f"{argv} does not end\n{out}\n{err}")
    return process.returncode, out, err


def read_record(home: Path) -> list[dict[str, Any]]:
    path = home / "record"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def read_errors(home: Path) -> dict[int, dict[str, Any]]:
    """On one node the folder's name, the local rank, is the rank."""
    return {int(path.parent.name): json.loads(path.read_text()) for path in home.glob("log/*/attempt_0/*/error.json")}

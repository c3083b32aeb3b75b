"""Rank programs for real: torch from .venv-torch on this machine, gloo between the ranks.

Each process of torchrun imports torch, which is nearly all the work of a small run: how it starts ranks is tested in
tests/cluster. What the programs do among themselves is tested here with forks of one process that has torch.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from tests.torch_environment import TORCH_PYTHON

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "token-of-this-pod"
END_SECONDS = 250.0
"""Guards against hanging, before pytest's own limit does."""


@dataclass(frozen=True)
class Done:
    """How a torchrun ended."""

    code: int
    """That of the rank that failed first."""
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


@pytest.fixture(scope="session")
def forks(no_pod_around_fixtures: None) -> Iterator[subprocess.Popen[bytes]]:
    """The process of ranks.py."""
    if not TORCH_PYTHON.exists():
        pytest.fail(f"there is no {TORCH_PYTHON}: make setup, or name another by A4_TEST_TORCH", pytrace=False)
    argv = [str(TORCH_PYTHON), str(Path(__file__).with_name("ranks.py"))]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}  # read when torch is imported
    with subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@dataclass(frozen=True)
class Ranks:
    """Starts a program of entrypoints/ on so many local ranks: `ranks("ddp.py", 2, "--steps", "3")`."""

    home: Path
    forks: subprocess.Popen[bytes]

    def __call__(self, program: str, count: int, *args: str, record: bool = True) -> Done:
        """`record=False`: the way people start it by hand, without any A4_ name."""
        home = self.home
        (home / "token").write_text(TOKEN + "\n")
        ours = {"A4_TOKEN_FILE": str(home / "token"), "A4_RECORD": str(home / "record")} if record else {}
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(home), **ours}
        asked = {"program": str(ROOT / "entrypoints" / program), "args": args, "ranks": count, "home": str(home)}
        statuses = told(self.forks, {**asked, "env": env})
        code = next((status for _, status in statuses if status), 0)
        out, err = ((home / name).read_text() for name in ("out", "err"))
        return Done(code, out, err, read_record(home), read_errors(home))

    def spoil(self, code: str, *which: int) -> None:
        """Have these ranks do something before the program begins."""
        condition = f"if os.environ.get('RANK') in {[str(rank) for rank in which]}:\n"
        (self.home / "sitecustomize.py").write_text(f"import os\n{condition}{indent(code, '    ')}")


@pytest.fixture
def ranks(tmp_path: Path, forks: subprocess.Popen[bytes]) -> Ranks:
    return Ranks(tmp_path, forks)


def told(forks: subprocess.Popen[bytes], asked: dict[str, Any]) -> list[tuple[int, int]]:
    """What ranks.py answers; fails the test when the ranks do not end."""
    assert forks.stdin is not None and forks.stdout is not None
    forks.stdin.write(json.dumps(asked).encode() + b"\n")
    ready, _, _ = select.select([forks.stdout], [], [], END_SECONDS)
    line = forks.stdout.readline() if ready else b""
    if not line:
        forks.kill()
        shown = {name: Path(asked["home"], name).read_text() for name in ("out", "err")}
        pytest.fail(f"{asked['program']} {asked['args']} does not end: {shown}")
    statuses: list[tuple[int, int]] = json.loads(line)
    return statuses


def read_record(home: Path) -> list[dict[str, Any]]:
    path = home / "record"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def read_errors(home: Path) -> dict[int, dict[str, Any]]:
    """By rank: on one node that is the local rank, the folder's name. A rank that was ended while it wrote has none."""
    return {
        int(path.parent.name): json.loads(path.read_text())
        for path in home.glob("log/*/attempt_0/*/error.json")
        if path.stat().st_size
    }

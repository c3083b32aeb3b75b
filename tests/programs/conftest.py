"""Rank programs for real: torch from .venv-torch on this machine, gloo between the ranks.

`torchrun` starts them as people do. Each of its processes imports torch, which is nearly all the work of a small run:
what the programs do among themselves is tested with `ranks`, whose ranks are forks of one process that has torch.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Read when the tests are collected: later, no variable of the agent is left in the environment.
TORCH = Path(os.environ.get("A4_TEST_TORCH", ROOT / ".venv-torch"))
TOKEN = "token-of-this-pod"
END_SECONDS = 250.0
"""Guards against hanging, before pytest's own limit does."""


@dataclass(frozen=True)
class Done:
    """How a torchrun ended."""

    code: int
    """torchrun's; for `ranks`, that of the rank that failed first."""
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


class Start(Protocol):
    def __call__(
        self, program: str, ranks: int, *args: str, env: Mapping[str, str] | None = None, record: bool = True
    ) -> Done:
        """Run a program of entrypoints/ on so many local ranks: `start("ddp.py", 2, "--steps", "3", env={…})`.

        env: what is added to the environment; record=False: the way people start it by hand, without any A4_ name.
        """


@pytest.fixture
def torchrun(tmp_path: Path) -> Start:
    def run(program: str, ranks: int, *args: str, env: Mapping[str, str] | None = None, record: bool = True) -> Done:
        home = new_home(tmp_path)
        argv = [str(with_torch("torchrun")), "--standalone", "--local-addr", "127.0.0.1"]
        argv += ["--nproc-per-node", str(ranks), "--log-dir", str(home / "log")]
        argv += [str(ROOT / "entrypoints" / program), *args]
        code, out, err = ended(argv, {**environment(home, record), **(env or {})})
        return Done(code, out, err, read_record(home), read_errors(home))

    return run


@pytest.fixture(scope="session")
def forks(no_pod_around_fixtures: None) -> Iterator[subprocess.Popen[bytes]]:
    """The process of ranks.py."""
    argv = [str(with_torch("python")), str(Path(__file__).with_name("ranks.py"))]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}  # read when torch is imported
    with subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def ranks(tmp_path: Path, forks: subprocess.Popen[bytes]) -> Start:
    def run(program: str, ranks: int, *args: str, env: Mapping[str, str] | None = None, record: bool = True) -> Done:
        home = new_home(tmp_path)
        asked = {"program": str(ROOT / "entrypoints" / program), "args": args, "ranks": ranks, "home": str(home)}
        statuses = told(forks, {**asked, "env": {**environment(home, record), **(env or {})}})
        code = next((status for _, status in statuses if status), 0)
        out, err = ((home / name).read_text() for name in ("out", "err"))
        return Done(code, out, err, read_record(home), read_errors(home))

    return run


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


def with_torch(name: str) -> Path:
    """A program of the environment that has torch."""
    path = TORCH / "bin" / name
    if not path.exists():
        why = f"no {name} in {TORCH}: make setup, or name an environment that has it by A4_TEST_TORCH"
        pytest.fail(why, pytrace=False)
    return path


def new_home(directory: Path) -> Path:
    """A home for one run."""
    home = directory / f"run-{len(list(directory.glob('run-*')))}"
    home.mkdir()
    return home


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
    """By rank: on one node that is the local rank, the folder's name. A rank that was ended while it wrote has none."""
    return {
        int(path.parent.name): json.loads(path.read_text())
        for path in home.glob("log/*/attempt_0/*/error.json")
        if path.stat().st_size
    }

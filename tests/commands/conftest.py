"""Commands as people type them, beside an agent that does what a test says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from unittest.mock import patch

import pytest

from agent import output
from agent.cli import main
from tests.commands.server import PATIENCE, FakeAgent

ROOT = Path(__file__).resolve().parents[2]
PREFIX, DOMAIN = "job-workload-", "job.local"
POD = {
    "NNODES": "3",
    "JOB_COMPLETION_INDEX": "1",
    "GPUS_PER_NODE": "4",
    "HOSTNAME_PREFIX": PREFIX,
    "DOMAIN_NAME": DOMAIN,
    "A4_JOBSET_UID": "uid",
}
"""Variables of pod 1 of 3."""


class Typed:
    """A command that runs. `through` is a program that starts it in surroundings of its own making."""

    def __init__(self, argv: tuple[str, ...], env: Mapping[str, str], through: Sequence[str] = (), **more: Any) -> None:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        self.process = subprocess.Popen(
            [*through, sys.executable, "-m", "agent", *argv], env={**env, "PYTHONPATH": str(ROOT)}, **pipes
        )

    @property
    def stdout(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    @property
    def stderr(self) -> IO[bytes]:
        assert self.process.stderr is not None
        return self.process.stderr

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        """Exit code, and what it has printed that nobody has read yet."""
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, (out or b"").decode(), (err or b"").decode()

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def pod_process() -> Iterator[subprocess.Popen[bytes]]:
    """Stands for the agent's process: what it was started with can be read."""
    env = {"PATH": os.environ["PATH"], "A4_WORKLOAD": "script", "NCCL_DEBUG": "WARN"}
    with subprocess.Popen([sys.executable, "-c", "input()"], env=env, stdin=subprocess.PIPE) as process:
        yield process
        assert process.stdin is not None
        process.stdin.write(b"\n")


@pytest.fixture
def agent(tmp_path: Path, pod_process: subprocess.Popen[bytes]) -> Iterator[FakeAgent]:
    """The agent of pod 1, in a cluster of four that sleeps."""
    with FakeAgent(tmp_path / "run", pid=pod_process.pid) as agent:
        yield agent


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An agent's run directory, still empty, for commands that are called without a shell's variables."""
    directory = tmp_path / "run"
    directory.mkdir()
    monkeypatch.setenv("A4_RUN_DIR", str(directory))
    return directory


Type = Callable[..., Typed]
Shown = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def type_command(tmp_path: Path) -> Iterator[Type]:
    """`type_command("exec", "hostname", env={…}, through=[…], stdout=…)` starts it in a shell of pod 1."""
    typed: list[Typed] = []

    def start(*argv: str, env: Mapping[str, str] | None = None, **more: Any) -> Typed:
        shell = {"PATH": os.environ["PATH"], "A4_RUN_DIR": str(tmp_path / "run"), **(env or {})}
        typed.append(Typed(argv, shell, **more))
        return typed[-1]

    yield start
    for each in typed:
        each.close()


@pytest.fixture
def call_command(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: Patch) -> Call:
    """The same without a process of its own: exit code, stdout, stderr."""

    def call(*argv: str, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> tuple[int, str, str]:
        shell = {"PATH": os.environ["PATH"], "A4_RUN_DIR": str(tmp_path / "run"), **(env or {})}
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(output, "_when_color", "auto")
        signal.signal(signal.SIGALRM, too_late)
        signal.alarm(int(PATIENCE))
        try:
            with patch.dict(os.environ, shell, clear=True):
                return verb(*argv), *capfd.readouterr()
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def too_late(*_: object) -> None:
        raise AssertionError(f"it did not end within {PATIENCE:g} s")

    return call


Prints = Callable[..., str]


@pytest.fixture
def prints(capsys: Shown) -> Prints:
    """`prints("peers", "--json")`: what a verb that ends with that code has printed."""

    def shown(*argv: str, code: int = 0) -> str:
        assert verb(*argv) == code
        return capsys.readouterr().out

    return shown


@pytest.fixture
def refused(capsys: Shown) -> Prints:
    """`refused(69, "peers")`: what a verb that ends so has said. It prints nothing else."""

    def told(code: int, *argv: str) -> str:
        assert verb(*argv) == code
        shown = capsys.readouterr()
        assert shown.out == ""
        return shown.err

    return told


def verb(*argv: str) -> int:
    """Exit code, whether it is returned or argparse raises it."""
    try:
        return main(list(argv))
    except SystemExit as end:
        assert isinstance(end.code, int)
        return end.code

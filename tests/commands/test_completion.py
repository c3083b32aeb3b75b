"""Completion, by a real bash."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from agent.catalogue import RUNNABLE
from agent.commands import VERBS
from agent.commands.completion import script


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name in ("mpirun-1a2b", "script-3c4d"):
        (tmp_path / "run" / "runs" / name).mkdir(parents=True)
    (tmp_path / "run" / "runs" / "a file").touch()
    return tmp_path / "run"


def bash(text: str, run_dir: Path | str = "/no/such") -> list[str]:
    done = subprocess.run(
        ["bash", "--norc", "--noprofile", "-uo", "pipefail", "-c", text],
        env={"PATH": os.environ["PATH"], "A4_RUN_DIR": str(run_dir)},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def completed(*words: str, run_dir: Path | str = "/no/such") -> list[str]:
    """What is offered for the last of these words."""
    typed = shlex.join(["a4-agent", *words])
    return bash(
        f"{script()}\nCOMP_WORDS=({typed}) COMP_CWORD={len(words)}\n"
        '_a4_agent; for word in "${COMPREPLY[@]}"; do printf "%s\\n" "$word"; done',
        run_dir,
    )


def test_it_is_bound_to_the_command() -> None:
    assert bash(f"{script()}\ncomplete -p a4-agent") == ["complete -o bashdefault -o default -F _a4_agent a4-agent"]


def test_it_is_valid() -> None:
    subprocess.run(["bash", "-n"], input=script(), text=True, check=True)


def test_verbs() -> None:
    assert completed("") == ["-h", "--help", "--version", *VERBS]
    assert completed("to") == ["torchrun", "topology"]
    assert completed("nothing-like-it") == []


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["run", "con"], ["connectivity"]),
        (["run", "--ord"], ["--order"]),
        (["run", "--order", ""], ["topology", "index"]),
        (["run", "--order", "=", "in"], ["index"]),
        (["run", "--order", "="], ["topology", "index"]),
        (["run", "--order", "index", "--detach", "sc"], ["script"]),
        (["run", "--nodes", ""], []),
        (["run", "script", "--", ""], []),
        (["mpirun", "-np", "4", "--lab"], ["--label"]),
        (["mpirun", "-np", "4", "./a.out", "--lab"], []),
        (["exec", "--no"], ["--nodes", "--no-fold"]),
        (["exec", "--no-fold", "--js"], ["--json"]),
        (["exec", "--", "hostname", "--"], []),
        (["exec", "hostname", ""], []),
        (["status", "--w"], ["--watch"]),
        (["local", "ex"], ["exec"]),
        (["local", "run", "--po"], ["--pods", "--port", "--pod-env"]),
        (["local", "run", "--pods", "4", "con"], ["connectivity"]),
        (["local", "exec", "--tty", ""], ["auto", "yes", "no"]),
        (["sync", ""], ["-h", "--help", "set", "wait", "fail", "list", "clean"]),
        (["sync", "wait", "download", "--fr"], ["--from"]),
        (["completion", "b"], ["bash"]),
        (["hostfile", "--order", "t"], ["topology"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_words(words: list[str], offered: list[str]) -> None:
    assert completed(*words) == offered


@pytest.mark.parametrize("words", [["exec", "bas"], ["exec", "--nodes", "2", "bas"], ["torchrun", "--", "bas"]])
def test_commands(words: list[str]) -> None:
    assert "bash" in completed(*words)
    assert all(word.startswith("bas") for word in completed(*words))


def test_every_workload() -> None:
    assert set(RUNNABLE) <= set(completed("run", ""))


def test_runs(runs: Path) -> None:
    assert completed("logs", "", run_dir=runs)[-2:] == ["mpirun-1a2b", "script-3c4d"]
    assert completed("logs", "mp", run_dir=runs) == ["mpirun-1a2b"]
    assert completed("cancel", "mp", run_dir=runs) == ["mpirun-1a2b"]
    assert completed("logs", "--label", "scr", run_dir=runs) == ["script-3c4d"]
    assert completed("status", "scr", run_dir=runs) == []


def test_no_runs() -> None:
    assert completed("logs", "x") == []

"""Completion: what is offered for words, and the scripts in their real shells."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from agent.catalogue import RUNNABLE
from agent.commands import VERBS
from agent.commands.completion import A_COMMAND, SCRIPTS, offered
from agent.decide.plan import Plan, PlannedPeer
from tests.commands.conftest import ROOT


@pytest.fixture
def pod(run_dir: Path) -> Path:
    """The run directory of a pod in a cluster of three, with two runs."""
    for name in ("mpirun-1a2b", "script-3c4d"):
        (run_dir / "runs" / name).mkdir(parents=True)
    (run_dir / "runs" / "a file").touch()
    plan = Plan("e", 8, tuple(PlannedPeer(index, f"job-{index}.a.b", "", "") for index in (0, 2, 1)))
    (run_dir / "plan.json").write_text(json.dumps(plan.to_json()))
    return run_dir


def completed(*words: str) -> list[str]:
    """What is offered for the last of these words."""
    return [word for word, _ in offered(words)]


def test_verbs_and_workloads() -> None:
    assert set(RUNNABLE) <= set(completed("run", ""))
    assert completed("") == completed() == [*VERBS]
    assert completed("to") == ["torchrun", "topology"]
    assert completed("nothing-like-it") == []
    assert completed("--v") == ["--version"]
    assert offered(["sta"]) == [("status", VERBS["status"])]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["run", "con"], ["connectivity"]),
        (["run", "--ord"], ["--order"]),
        (["run", "--order", ""], ["topology", "index"]),
        (["run", "--order", "=", "in"], ["index"]),
        (["run", "--order", "="], ["topology", "index"]),
        (["run", "--order", "index", "--detach", "sc"], ["script"]),
        (["run", "--nodes", ""], []),
        (["run", "script", "--", ""], []),
        (["run", "nccl", "--", "--re"], ["--repeat"]),
        (["run", "nccl", "--", "--tests", "all_reduce,bro"], ["all_reduce,broadcast"]),
        (["local", "run", "collectives", "--", "--backend", ""], ["nccl", "gloo"]),
        (["mpirun", "-np", "4", "--lab"], ["--label"]),
        (["mpirun", "-np", "4", "./a.out", "--lab"], []),
        (["mpirun", "-np", "4", "./a.out", ""], []),
        (["exec", "--no"], ["--nodes", "--note", "--no-fold"]),
        (["exec", "--no-fold", "--js"], ["--json"]),
        (["exec", "bas"], [A_COMMAND]),
        (["exec", "--nodes", "2", "bas"], [A_COMMAND]),
        (["torchrun", "--", "bas"], [A_COMMAND]),
        (["exec", "--", "hostname", "--"], []),
        (["exec", "hostname", ""], []),
        (["status", "--w"], ["--watch"]),
        (["status", "scr"], []),
        (["local", "ex"], ["exec"]),
        (["local", "run", "--po"], ["--pods", "--port", "--pod-env"]),
        (["local", "run", "--pods", "4", "con"], ["connectivity"]),
        (["local", "exec", "--tty", ""], ["auto", "yes", "no"]),
        (["sync", ""], ["set", "wait", "fail", "list", "clean"]),
        (["sync", "wait", "download", "--fr"], ["--from"]),
        (["completion", ""], ["bash", "zsh", "fish", "words"]),
        (["settings", "A4_LEASE"], ["A4_LEASE_SECONDS"]),
        (["hostfile", "--order", "t"], ["topology"]),
        (["--color", "a"], ["auto", "always"]),
        (["--color", "always", "get", "-"], ["-h", "--help", "--all", "-o", "--output", "--files"]),
        (["--color=never", "local", "ex"], ["exec"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_words(words: list[str], found: list[str]) -> None:
    assert completed(*words) == found


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["logs", ""], ["mpirun-1a2b", "script-3c4d"]),
        (["logs", "--label", "scr"], ["script-3c4d"]),
        (["cancel", "mp"], ["mpirun-1a2b"]),
        (["get", "mp"], ["mpirun-1a2b"]),
        (["report", "mp"], ["mpirun-1a2b"]),
        (["logs", "--pod", ""], ["0", "2", "1"]),
        (["exec", "--hosts", "0,2"], ["0,2"]),
        (["run", "--exclude", "0,"], ["0,0", "0,2", "0,1"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_what_there_is_in_a_pod(words: list[str], found: list[str], pod: Path) -> None:
    assert completed(*words) == found


def test_where_there_is_nothing_nothing_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of pods, and where one may not look. Tests are root, who may look everywhere, but follows no link that
    leads to itself."""
    (tmp_path / "runs").symlink_to("runs")
    for place in (tmp_path / "none", tmp_path):
        monkeypatch.setenv("A4_RUN_DIR", str(place))
        assert completed("logs", "") == completed("logs", "--pod", "") == []


# Shells

AGENT = f"{shlex.quote(sys.executable)} -m agent"
IN_SHELL = {
    "bash": """
a4-agent() { AGENT "$@"; }
SCRIPT
for words in "logs mp" "exec bash" "sta"; do
    COMP_WORDS=(a4-agent $words) COMP_CWORD=$(set -- $words; echo $#)
    _a4_agent
    printf '%s\\n' "${COMPREPLY[@]}" | LC_ALL=C sort | head -1
done
complete -p a4-agent
""",
    "zsh": """
a4-agent() { AGENT "$@"; }
_describe() { print -rl -- ${(P)2} | head -1; }
_command_names() { echo a command; }
compdef() { echo "compdef $@"; }
SCRIPT
for typed in "logs mp" "exec bas" "sta"; do
    words=(a4-agent ${=typed}) CURRENT=$#words
    _a4_agent
done
""",
    "fish": """
function a4-agent; AGENT $argv; end
SCRIPT
complete -C 'a4-agent logs mp' | head -1
complete -C 'a4-agent exec bas' | grep -o '^bash' | head -1
complete -C 'a4-agent sta' | head -1
""",
}
SHOWN = {
    "bash": ["mpirun-1a2b", "bash", "status", "complete -o bashdefault -o default -F _a4_agent a4-agent"],
    "zsh": ["compdef _a4_agent a4-agent", "mpirun-1a2b:run", "a command", f"status:{VERBS['status']}"],
    "fish": ["mpirun-1a2b\trun", "bash", f"status\t{VERBS['status']}"],
}


@pytest.mark.parametrize("shell", SCRIPTS)
def test_in_its_shell(shell: str, pod: Path) -> None:
    text = IN_SHELL[shell].replace("AGENT", AGENT).replace("SCRIPT", SCRIPTS[shell])
    options = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run(
        [shell, *options, "-c", text],
        env={"PATH": os.environ["PATH"], "A4_RUN_DIR": str(pod), "PYTHONPATH": str(ROOT), "HOME": str(pod)},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert (done.stdout.splitlines(), done.stderr) == (SHOWN[shell], ""), done

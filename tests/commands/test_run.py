"""`a4-agent run`: the agent, or a client of it? And what `--dry-run` shows."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from agent.cli import verb_of
from agent.commands.run import patiently
from tests.commands.conftest import POD, Call, Prints, Type
from tests.commands.server import FakeAgent

ALONE = {**POD, "NNODES": "1", "JOB_COMPLETION_INDEX": "0", "A4_WORKLOAD": "none"}


def test_beside_an_agent_it_needs_no_settings(agent: FakeAgent, call_command: Call) -> None:
    """As in a session of ssh, which has next to no variables."""
    agent.submitted = lambda run: run.end()
    assert call_command("run", "connectivity")[0] == 0
    assert agent.runs[0].spec["workload"] == "connectivity"


def test_settings_of_the_pod_are_the_agents_and_not_those_of_the_shell(agent: FakeAgent, call_command: Call) -> None:
    """Its workload is `script`."""
    agent.submitted = lambda run: run.end()
    code, _, err = call_command("run", env={**ALONE, "A4_BASELINES": "/mine.json"})
    assert (code, agent.runs[0].spec["workload"]) == (0, "script")
    assert "warning: A4_BASELINES=/mine.json of this shell has no effect" in err
    _, out, err = call_command("settings", env={**ALONE, "A4_PROFILE": "a3-tcpx"})
    assert "a3-tcpx" not in out.replace("a4-deepep, a3-tcpx", "") and "A4_PROFILE=a3-tcpx of this shell" in err


def test_an_agent_that_has_no_door(tmp_path: Path, type_command: Type) -> None:
    """The lock decides, and whoever waits in vain for the socket hears of it."""
    directory = tmp_path / "run"
    directory.mkdir(mode=0o700)
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.write(lock, b"pid 1 since a moment ago\n")
    code, out, err = type_command("run", "none", env=ALONE).end()
    os.close(lock)
    assert (code, out) == (75, "")
    assert "pid 1 since a moment ago" in err
    assert "a4-agent status" in err


def test_the_door_opens_while_we_wait_or_not() -> None:
    answers = iter([None, None, "here", "too late"])
    assert patiently(lambda: next(answers), 60) == "here"
    assert patiently(lambda: None, 0.0) is None


def test_an_agent_that_cannot_start_says_so_as_its_log_would(type_command: Type) -> None:
    env = {**POD, "A4_LOG_FORMAT": "json", "GPUS_PER_NODE": "many", "A4_EPOCH": "uid.0.1", "NODE_NAME": "node-7"}
    code, out, err = type_command("run", env=env).end()
    line = json.loads(err)
    assert (code, out, line["severity"], line["code"], line["origin"]) == (78, "", "ERROR", 78, "agent")
    assert (line["epoch"], line["node"], line["run"]) == ("uid.0.1", "node-7", "")
    assert "GPUS_PER_NODE='many'" in line["message"]
    code, out, err = type_command("run", env={**env, "A4_LOG_FORMAT": "text"}).end()
    assert (code, out, err.startswith("a4-agent: ")) == (78, "", True)


@pytest.mark.parametrize("option", ["--detach", "--label"])
def test_what_only_a_client_can(option: str, tmp_path: Path, type_command: Type) -> None:
    code, out, err = type_command("run", option, "none", env=ALONE).end()
    assert (code, out) == (2, "")
    assert f"{option} needs a running agent; there is none in this pod yet" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("option", "what"),
    [("--strict", "--strict needs --gate"), ("--order=index", "--order has no effect: the cluster is already formed")],
)
def test_what_makes_no_sense_beside_an_agent(option: str, what: str, agent: FakeAgent, type_command: Type) -> None:
    code, out, err = type_command("run", option, "none").end()
    assert (code, out) == (2, "") and what in err
    assert not agent.asked("submit")


@pytest.mark.parametrize("words", ["run nccl --help", "help run nccl", "run --dry-run nccl -h"])
def test_help_of_a_workload(words: str, prints: Prints) -> None:
    out = prints(*words.split())
    assert out.startswith("usage: a4-agent run [options] nccl [-- ARGUMENT ...]\n")
    assert "--repeat N runs of each test" in " ".join(out.split())
    assert "All other arguments go to every program of nccl-tests." in out


def test_help_without_a_workload(prints: Prints) -> None:
    assert "a4-agent run WORKLOAD --help lists them" in " ".join(prints("run", "--help").split())


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("", ""),
        ("run none", "run"),
        ("--color never run none", "run"),
        ("--color=never run", "run"),
        ("--color never --color=always run", "run"),
        ("--color run status", "status"),
        ("exec --color never run", "exec"),
        ("--version", ""),
        ("--color", ""),
    ],
)
def test_the_verb_before_all_words_are_understood(typed: str, found: str) -> None:
    """`run` must hold signals back before anything else is imported."""
    assert verb_of(typed.split()) == found

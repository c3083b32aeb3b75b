"""`a4-agent status` through the life of a pod."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from agent.cli import main
from agent.commands.status import FRESH_SECONDS, describe

STATE: dict[str, Any] = {
    "phase": "running",
    "index": 1,
    "pods": 3,
    "since": 1000.0,
    "epoch": "uid.0.0",
    "agent": "1.2.3",
}
END = {"code": 75, "what": "pod 2 was lost", "where": "pod 2", "why": "line 1\nline 2", "origin": "agent"}
Shown = pytest.CaptureFixture[str]


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("A4_RUN_DIR", str(tmp_path))
    return tmp_path


def test_no_agent_was_started(run_dir: Path, capsys: Shown) -> None:
    assert main(["status"]) == 0
    assert capsys.readouterr().out == f"no a4-agent has been started in this pod ({run_dir} holds no state)\n"
    assert main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"state": None, "alive_seconds_ago": None, "plan": None}


def test_a_running_agent(run_dir: Path, capsys: Shown) -> None:
    state = STATE | {"since": time.time(), "run": {"id": "run-7", "workload": "connectivity"}}
    (run_dir / "state.json").write_text(json.dumps(state))
    (run_dir / "alive").touch()
    assert main(["status"]) == 0
    shown = capsys.readouterr().out
    assert "pod 1 of 3 takes part in a run, since " in shown
    assert "run run-7 (connectivity)" in shown
    assert "no sign of life" not in shown
    assert main(["status", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["state"] == state
    assert data["alive_seconds_ago"] is not None


@pytest.mark.parametrize("text", ["{", "[]", "null x"])
def test_a_damaged_state_is_told(text: str, run_dir: Path, capsys: Shown) -> None:
    (run_dir / "state.json").write_text(text)
    assert main(["status"]) == 71
    assert "state.json is damaged" in capsys.readouterr().err


@pytest.mark.parametrize("alive", [None, FRESH_SECONDS + 1])
def test_a_dead_agent(alive: float | None) -> None:
    assert "no sign of life: it was killed or hangs" in describe(STATE, alive, 1010.0)


def test_an_agent_that_has_ended_need_not_live() -> None:
    text = describe(STATE | {"phase": "ended", "end": END}, None, 1010.0)
    assert "sign of life" not in text
    assert text.endswith("the job's end: exit code 75, pod 2 was lost (pod 2)\n  line 1\n  line 2\n")


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("preparing", "is starting"),
        ("waiting", "waits for the coordinator"),
        ("forming", "is forming the cluster"),
        ("formed", "has the plan"),
        ("running", "takes part in a run"),
        ("sleeping", "SLEEP_INFINITY"),
        ("ended", "has ended"),
        ("a later phase", "a later phase"),
    ],
)
def test_every_phase_in_words(phase: str, words: str) -> None:
    assert words in describe(STATE | {"phase": phase}, 0.0, 1000.0).splitlines()[0]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-5, "since 0 s"), (0, "since 0 s"), (119, "since 119 s"), (600, "since 10 min"), (9000, "since 2.5 h")],
)
def test_how_long(seconds: float, words: str) -> None:
    assert describe(STATE, 0.0, 1000.0 + seconds).splitlines()[0].endswith(words)


def test_who_is_missing() -> None:
    text = describe(STATE | {"phase": "forming", "missing": {"2": "port 2222 refused"}}, 0.0, 1000.0)
    assert "  missing pod 2: port 2222 refused\n" in text

"""`a4-agent env`: where every variable comes from, and what a profile makes of an environment."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from agent.decide.environment import Layer, of_pod, saved
from agent.fabrics.profiles import PROFILES
from tests.commands.conftest import Call, Prints, Shown, verb
from tests.commands.server import FakeAgent
from tests.decide.profiles import profile

SECRET = "canary-12345678"


@pytest.fixture(autouse=True)
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("A4_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    return tmp_path / "run"


def sourced(text: str, env: dict[str, str]) -> dict[str, str]:
    done = subprocess.run(
        ["bash", "-c", f"{text}\nexec env -0"], env={"PATH": os.environ["PATH"], **env}, capture_output=True, check=True
    )
    return dict(entry.split("=", 1) for entry in done.stdout.decode().split("\0") if entry)


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_as_shell_text(name: str, prints: Prints) -> None:
    env = sourced(prints("env", "--profile", name, "--shell"), dict.fromkeys(profile(name).unset, "preset"))
    assert profile(name).values.items() <= env.items()
    assert not env.keys() & set(profile(name).unset)


def test_a_profile_upon_this_environment(monkeypatch: pytest.MonkeyPatch, prints: Prints) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/image")
    monkeypatch.setenv("NCCL_NET", "Socket")
    monkeypatch.setenv("A4_USER_ENV", "NCCL_NET, OTHER")
    shown = json.loads(prints("env", "--profile", "a4-gib", "--json"))
    assert shown["variables"] == {
        "LD_LIBRARY_PATH": "/usr/local/gib/lib64:/usr/local/nvidia/lib64:/image",
        "NCCL_NET": "Socket",
    }
    assert shown["overruled"] == ["NCCL_NET=Socket (A4_USER_ENV) overrules NCCL_NET=gIB (profile a4-gib)"]
    assert prints("env", "--profile", "none").startswith("# profile none: asked for with --profile\n")


def test_some_variables_alone(monkeypatch: pytest.MonkeyPatch, capsys: Shown, prints: Prints) -> None:
    monkeypatch.setenv("GREETING", "hello")
    assert json.loads(prints("env", "GREETING", "--json"))["variables"] == {"GREETING": "hello"}
    assert verb("env", "GREETINGS", "--shell") == 2
    assert "there is no variable 'GREETINGS' for workloads; did you mean GREETING?" in capsys.readouterr().err


def test_a_wrong_list_of_names(monkeypatch: pytest.MonkeyPatch, refused: Prints) -> None:
    monkeypatch.setenv("A4_USER_ENV", "NCCL_NET=Socket")
    assert "A4_USER_ENV" in refused(78, "env", "--profile", "a4-gib")


def test_before_there_is_an_agent(monkeypatch: pytest.MonkeyPatch, prints: Prints) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.setenv("ADDRESS", f"https://{SECRET}@host")
    monkeypatch.setenv("A4_SECRET_ENV", "QUIET")
    monkeypatch.setenv("QUIET", "tiny")
    monkeypatch.setenv("LINES_OF_TEXT", "two\nlines")
    out = prints("env")
    assert "no a4-agent has prepared this pod yet" in out and SECRET not in out and "tiny" not in out
    assert "https://***@host" in out and r"'two\nlines'" in out
    env = sourced(prints("env", "--shell"), {})
    assert env["LINES_OF_TEXT"] == "two\nlines"
    assert not {"HF_TOKEN", "ADDRESS", "QUIET"} & env.keys()


def test_what_the_agent_has_prepared(agent: FakeAgent, call_command: Call, run_dir: Path) -> None:
    layer = Layer("profile a4-gib", {"NCCL_NET": "gIB", "NCCL_DEBUG": "INFO"}, ["A4_WORKLOAD"])
    made = of_pod({"NCCL_DEBUG": "WARN", "A4_WORKLOAD": "script"}).with_layer(layer)
    (run_dir / "environment.json").write_text(json.dumps(saved(made, "a4-gib", "it is a test")))
    code, out, _ = call_command("env", "--json")
    shown = json.loads(out)
    assert (code, shown["profile"], shown["why"]) == (0, "a4-gib", "it is a test")
    assert shown["unset"] == ["A4_WORKLOAD"]
    assert (shown["variables"]["NCCL_NET"], shown["variables"]["NCCL_DEBUG"]) == ("gIB", "INFO")
    assert shown["sources"]["NCCL_NET"] == "profile a4-gib"
    # What the agent has prepared is no doing of the shell's user: it does not travel with a run.
    assert call_command("run", "script", "--detach", env={"NCCL_NET": "gIB", "NCCL_DEBUG": "TRACE"})[0] == 0
    assert {name for name in agent.runs[0].spec["env"] if name.startswith("NCCL_")} == {"NCCL_DEBUG"}


def test_a_dry_run_before_there_is_an_agent(monkeypatch: pytest.MonkeyPatch, prints: Prints) -> None:
    monkeypatch.setenv("NNODES", "1")
    monkeypatch.setenv("A4_PROFILE", "a3-tcpx")
    assert "-x NCCL_GPUDIRECTTCPX_TX_BINDINGS" in prints("run", "--dry-run", "connectivity")

"""What verbs answer to --json is as docs/answers.schema.json says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.commands.conftest import ROOT, Call, Type
from tests.commands.server import FakeAgent, FakeRun
from tests.commands.test_following import VERBS

KINDS = json.loads((ROOT / "docs" / "answers.schema.json").read_text())["$defs"]
by_verb = pytest.mark.parametrize("argv", VERBS, ids=lambda argv: argv[0])


def answer(kind: str, text: str) -> dict[str, Any]:
    """The one line, if it is of that kind."""
    (line,) = text.splitlines()
    found: dict[str, Any] = json.loads(line)
    jsonschema.validate(found, {**KINDS[kind], "additionalProperties": False})
    assert found["version"] == 1
    return found


def with_json(argv: tuple[str, ...], *more: str) -> tuple[str, ...]:
    return (argv[0], "--json", *more, *argv[1:])


@by_verb
def test_the_end_of_a_run(argv: tuple[str, ...], agent: FakeAgent, call_command: Call) -> None:
    def life(run: FakeRun) -> None:
        run.say(0, b"out\n")
        run.end(7, "it failed", text="a table\n", where="pod 2", codes={0: 7}, lost={3: "gone"}, results="/gcs/results")

    agent.submitted = life
    code, out, err = call_command(*with_json(argv))
    found = answer("RunAnswer", out)
    assert (code, found["run"], found["pods"]) == (7, agent.runs[0].id, agent.runs[0].pods)
    assert (found["end"]["code"], found["end"]["where"]) == (7, "pod 2")
    assert (found["codes"], found["lost"], found["results"]) == ({"0": 7}, {"3": "gone"}, "/gcs/results")
    assert {"out", "a table"} <= set(err.splitlines())


@by_verb
def test_a_run_that_is_left_alone(argv: tuple[str, ...], agent: FakeAgent, call_command: Call) -> None:
    code, out, _ = call_command(*with_json(argv, "--detach"))
    found = answer("RunAnswer", out)
    assert (code, found["run"], found["end"]) == (0, agent.runs[0].id, None)


@pytest.mark.parametrize("over", [True, False])
def test_cancel(over: bool, agent: FakeAgent, type_command: Type) -> None:
    run = FakeRun(agent, "script-7", {}, [0, 1])
    agent.runs = [run]
    if over:
        run.end(3, "ended before")
    typed = type_command("cancel", "--json", "script-7")
    if not over:
        agent.until(lambda: bool(agent.asked("cancel")))
        run.end(130, "cancelled", origin="agent")
    code, out, _ = typed.end()
    assert (code, answer("RunAnswer", out)["end"]["code"]) == (0, 3 if over else 130)


def test_release(agent: FakeAgent, type_command: Type) -> None:
    code, out, _ = type_command("release", "--json").end()
    assert (code, set(answer("ReleaseAnswer", out))) == (0, {"version", "code"})


@pytest.mark.parametrize("options", [(), ("--no-follow",), ("--tail", "5")])
def test_lines_of_a_log(agent: FakeAgent, call_command: Call, options: tuple[str, ...]) -> None:
    run = FakeRun(agent, "script-7", {}, [0])
    agent.runs = [run]
    for stream, data in ((1, b"a\nb"), (1, b" b\n\xff"), (2, b"oh\n"), (3, b"the agent's\n")):
        run.say(0, data, stream)
    run.end(text="a table\n")
    code, out, err = call_command("logs", "--json", *options)
    lines = [answer("LogLine", line) for line in out.splitlines()]
    assert code == 0
    assert [line["text"] for line in lines if line["stream"] == "stdout"] == ["a", "b b", "\ufffd"]
    assert [line["text"] for line in lines if line["stream"] == "stderr"] == ["oh"]
    assert {line["pod"] for line in lines} == {0}
    assert "a table" in err


@pytest.mark.parametrize("argv", [*VERBS, ("exec", "--", "true")], ids=lambda argv: argv[0])
def test_a_dry_run(argv: tuple[str, ...], call_command: Call, tmp_path: Path) -> None:
    pod = {"NNODES": "1", "GPUS_PER_NODE": "1", "A4_RUN_DIR": str(tmp_path / "run")}
    text = call_command(argv[0], "--dry-run", *argv[1:], env=pod)
    code, out, _ = call_command(*with_json(argv, "--dry-run"), env=pod)
    assert (code, answer("DryRunAnswer", out)["text"]) == (text[0], text[1])

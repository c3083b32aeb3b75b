"""What is shown on a terminal of 80 columns fits it; in a pipe nothing is cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.catalogue import RUNNABLE
from agent.cli import main
from agent.commands import VERBS, Parser, build_parser
from agent.decide.plan import Plan, PlannedPeer
from tests.commands.conftest import Call, Type
from tests.terminal import Terminal

COLUMNS = 80
LONG = "0123456789abcdef" * 10


def commands(parser: Parser, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield before
    for name, inner in parser.verbs.items():
        yield from commands(inner, (*before, name))


@pytest.mark.parametrize(
    "words", [*commands(build_parser(*VERBS)), *(("run", name) for name in RUNNABLE)], ids=" ".join
)
def test_help(words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > COLUMNS] == []


@pytest.mark.parametrize(
    ("words", "part", "last"),
    [
        ("peers", f"pod-{LONG}-1.a.b", "to see all"),
        ("topology", f"node-{LONG}-1", "places from"),
        ("env", LONG, "to see all"),
        ("settings", "what to run: none", "NAME says more"),
        ("settings domain_name workload", "what to run: none", ", script"),
    ],
)
def test_tables(words: str, part: str, last: str, tmp_path: Path, call_command: Call, type_command: Type) -> None:
    (tmp_path / "run").mkdir()
    place = ("c" * 30,) * 4
    peers = [PlannedPeer(i, f"pod-{LONG}-{i}.a.b", "198.18.1.1", f"node-{LONG}-{i}", place) for i in range(2)]
    plan = Plan("epoch", 8, tuple(peers), "physical_host")
    (tmp_path / "run" / "plan.json").write_text(json.dumps(plan.to_json()))
    (tmp_path / "secret").write_text("s" * 40)
    pod = {"NNODES": "2", "JOB_COMPLETION_INDEX": "1", "GPUS_PER_NODE": "4", "HOSTNAME_PREFIX": "job-", "LONG": LONG}
    pod |= {"DOMAIN_NAME": f"{LONG[:60]}.local", "A4_SECRET_FILE": str(tmp_path / "secret"), "A4_JOBSET_UID": "uid"}
    code, whole, _ = call_command(*words.split(), env=pod)
    assert (code, part in whole, "…" in whole) == (0, True, False)
    with Terminal(columns=COLUMNS) as terminal:
        typed = type_command(*words.split(), env=pod, through=terminal.through, **terminal.streams)
        shown = terminal.until(last) + last
        assert typed.process.wait() == 0
    assert [line for line in shown.split("\r\n") if len(line) > COLUMNS] == []
    assert "…" in shown

"""The agent's log: labelled lines, one JSON object each if wanted, and no secrets."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cutting import visible
from agent.decide.ending import JobEnd
from agent.log import LEVELS, Log


def written(form: str, texts: list[str]) -> str:
    stream = io.StringIO()
    log = Log("debug", form, stream)
    log.labels = {"pod": "2/4", "job": "job-1"}
    for text in texts:
        log.info(text)
    return stream.getvalue()


@given(st.lists(st.text(max_size=40), max_size=5))
def test_json_is_one_object_a_line(texts: list[str]) -> None:
    lines = written("json", texts).split("\n")
    assert lines.pop() == ""
    objects = [json.loads(line) for line in lines]
    assert [entry["message"] for entry in objects] == texts
    for entry in objects:
        assert entry.pop("time").endswith("Z")
        assert entry == {"severity": "INFO", "message": entry["message"], "pod": "2/4", "job": "job-1"}


@given(st.text())
def test_every_line_of_text_names_its_pod(text: str) -> None:
    lines = written("text", [text]).splitlines()
    assert len(lines) == len(visible(text).splitlines())
    assert all(" a4-agent [2/4] " in line for line in lines)


@pytest.mark.parametrize("least", LEVELS)
def test_levels(least: str) -> None:
    stream, plain = io.StringIO(), io.StringIO()
    for level in LEVELS:
        getattr(Log(least, "json", stream), level)(level)
    Log(stream=plain).warning("look out")
    shown = [json.loads(line) for line in stream.getvalue().splitlines()]
    wanted = LEVELS[LEVELS.index(least) :]
    assert [(entry["severity"], entry["message"]) for entry in shown] == [(level.upper(), level) for level in wanted]
    assert plain.getvalue().endswith(" a4-agent warning: look out\n"), "it has no place yet"


def test_the_run_is_a_label_while_there_is_one() -> None:
    stream = io.StringIO()
    log = Log("info", "json", stream, ["secret-1"])
    for run in ("ddp-1", "", "of-secret-1"):
        log.labels["run"] = run
        log.info("x")
    assert [json.loads(line).get("run") for line in stream.getvalue().splitlines()] == ["ddp-1", None, "of-***"]


@pytest.mark.parametrize(
    ("write", "wanted"),
    [
        (lambda log: log.error("x"), {"code": None, "origin": "agent", "run": "ddp-1"}),
        (lambda log: log.error("x", JobEnd(75, "y")), {"code": 75, "origin": "agent", "run": "ddp-1"}),
        (
            lambda log: log.info("x", JobEnd(0, "y", origin="workload"), "r"),
            {"code": 0, "origin": "workload", "run": "r"},
        ),
    ],
)
def test_errors_and_ends_have_fields_of_their_own(write: Callable[[Log], None], wanted: dict[str, object]) -> None:
    stream, text = io.StringIO(), io.StringIO()
    place = {"pod_name": "job-0-0-***", "node": "node-0", "epoch": "uid.0.1"}
    for log in (Log(form="json", stream=stream, secrets=["secret-1"]), Log(stream=text, secrets=["secret-1"])):
        log.labels = {"run": "ddp-1"}
        log.place = {**place, "pod_name": "job-0-0-secret-1"}
        log.info("before")
        write(log)
    before, line = (json.loads(line) for line in stream.getvalue().splitlines())
    assert not before.keys() & {"code", "origin", *place}
    assert {name: line[name] for name in ("code", "origin", "run", *place)} == {**wanted, **place}
    assert "uid" not in text.getvalue()


def test_a_reader_that_has_gone_ends_nothing() -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    log = Log(stream=Broken())
    heard: list[str] = []
    log.tee = heard.append
    log.error("nobody hears this")
    assert log.labels == {}
    assert len(heard) == 1


@pytest.mark.parametrize("form", ["text", "json"])
def test_lines_go_to_a_sink_and_beside_it(form: str) -> None:
    written, lines, stream = list[bytes](), list[str](), io.StringIO()
    log = Log("debug", form, stream, ["secret-1"])
    log.write, log.tee = written.append, lines.append
    log.warning("one secret-1\ntwo é \udcff secret-2")
    log.add_secrets(["secret-2"])
    log.error("three secret-2 é \udcff")
    assert stream.getvalue() == ""
    assert b"".join(written).decode() == "".join(lines)
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in lines)
    if form == "json":
        shown = [json.loads(line)["message"] for line in lines]
        assert shown == ["one ***\ntwo é \\udcff secret-2", "three *** é \\udcff"]
    else:
        shown = [re.sub(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "", line) for line in lines]
        assert shown == [
            " a4-agent warning: one ***\n",
            " a4-agent warning: two é \\udcff secret-2\n",
            " a4-agent error: three *** é \\udcff\n",
        ]

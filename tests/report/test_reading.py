"""The schema, the examples by it, and what is no result."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from agent.decide.result_reader import NotAResult, read_result
from agent.report.startup import startup
from scripts.result_schema import result_schema
from tests.report.examples import EXAMPLES, NOON, collectives, compared, ddp

SCHEMA = result_schema(strict=True)
VALIDATOR = Draft202012Validator(SCHEMA)


def test_examples_are_valid_and_read() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    for data in (*(make() for make in EXAMPLES.values()), *compared()):
        VALIDATOR.validate(data)
        found = read_result(data)
        assert (found.run, len(found.pods), len(found.sweeps)) == (data["run"], len(data["pods"]), len(data["sweeps"]))


def test_phases_that_are_not_known_are_passed_over() -> None:
    later = ddp()
    for one in later["pods"]:
        one["phases"]["some-later-phase"] = NOON
    assert startup(read_result(later)) == startup(read_result(ddp()))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ([], "no result of a run"),
        (None, "no result of a run"),
        ({"a": 1}, "no result of a run"),
        ({"version": 1, "run": "x"}, "version 1 of result.json, this a4-agent reads version 2: too old"),
        ({"version": 3, "run": "x"}, "a newer a4-agent is needed"),
        ({"version": True, "run": "x"}, "version True"),
        ({"version": "2", "run": "x"}, "version '2'"),
        ({"version": 2, "run": "x"}, "is missing"),
    ],
)
def test_no_result_or_another_version(data: object, why: str) -> None:
    with pytest.raises(NotAResult, match=why):
        read_result(data)


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        (["verdict", "status"], "fine", "verdict.status is 'fine', not one of passed, failed, ended"),
        (["tables"], [{"name": "t", "title": "", "columns": [], "rows": [[1]]}], r"tables\[0\].rows\[0\] has 1 cells"),
        (
            ["tables"],
            [{"name": "t", "title": "", "columns": [], "rows": [[{}]]}],
            r"rows\[0\]\[0\] is not a text, a num",
        ),
    ],
)
def test_what_is_used_is_checked(path: list[Any], value: object, why: str) -> None:
    """Each type of value: tests/test_wire.py."""
    data = copy.deepcopy(collectives())
    at: Any = data
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    with pytest.raises(NotAResult, match=why):
        read_result(data)


def test_every_missing_name_is_named() -> None:
    for name in SCHEMA["required"]:
        data = {key: value for key, value in ddp().items() if key != name}
        with pytest.raises(NotAResult, match=f"{name} is missing|no result"):
            read_result(data)


def test_what_results_of_older_releases_lack() -> None:
    data = {name: value for name, value in ddp().items() if name in SCHEMA["required"]}
    assert set(ddp()) - set(data) == {"record", "trainings"}
    assert read_result(data).trainings == ()

"""The published schemas: made of the types, and still what they promised."""

from __future__ import annotations

import json

from jsonschema import Draft202012Validator

from scripts.result_schema import ANSWERS_PATH, COMMAND, PATH, answers_schema, result_schema, text
from tests.report.examples import ddp

PUBLISHED = json.loads(PATH.read_text())


def test_the_published_schemas_are_those_of_the_types() -> None:
    assert PATH.read_text() == text(result_schema()), f"run {COMMAND}"
    assert ANSWERS_PATH.read_text() == text(answers_schema()), f"run {COMMAND}"


def test_readers_may_meet_names_that_are_not_known() -> None:
    data = ddp() | {"later": 1}
    Draft202012Validator(PUBLISHED).validate(data)
    assert not Draft202012Validator(result_schema(strict=True)).is_valid(data)

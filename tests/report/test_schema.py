"""The published schemas: made of the types, and still what they promised."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from scripts.result_schema import ANSWERS_PATH, COMMAND, PATH, answers_schema, result_schema, text
from tests.report.examples import EXAMPLES

PUBLISHED = json.loads(PATH.read_text())


def test_the_published_schemas_are_those_of_the_types() -> None:
    assert PATH.read_text() == text(result_schema()), f"run {COMMAND}"
    assert ANSWERS_PATH.read_text() == text(answers_schema()), f"run {COMMAND}"


def described(schema: Any, path: str = "") -> dict[str, str]:
    """Path → description, of everything that has one."""
    if isinstance(schema, list):
        return {name: words for one in schema for name, words in described(one, path).items()}
    if not isinstance(schema, dict):
        return {}
    found = {path: schema["description"]} if isinstance(schema.get("description"), str) else {}
    for name, one in schema.get("properties", {}).items():
        found |= described(one, f"{path}.{name}")
    return found | described(schema.get("items"), path) | described(schema.get("oneOf"), path)


def test_fields_say_what_they_are() -> None:
    words = described(PUBLISHED)
    assert words[".verdict.code"] == "exit code, docs/exit-codes.md"
    assert words[".pods.index"] == "completion index"
    assert "seconds since 1970" in words[""]


@pytest.mark.parametrize("name", EXAMPLES)
def test_readers_may_meet_names_that_are_not_known(name: str) -> None:
    data = EXAMPLES[name]() | {"later": 1}
    Draft202012Validator(PUBLISHED).validate(data)
    assert not Draft202012Validator(result_schema(strict=True)).is_valid(data)

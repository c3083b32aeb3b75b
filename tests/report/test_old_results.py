"""Results that were stored by earlier versions are read by this one, and made into a page.

tests/report/old has results of real runs, as they were stored; the names of the files begin with the commit that ran
them. A file is never changed; one is added when result.json has something new. first_fields.json has the fields that
have been there from the beginning.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.report.page import render_run
from agent.report.reading import read_result
from scripts.result_schema import result_schema

OLD = Path(__file__).with_name("old")
RESULTS = sorted(OLD.glob("*-*.json"))
FIRST = json.loads((OLD / "first_fields.json").read_text())


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_an_old_result_becomes_a_page(path: Path) -> None:
    data = json.loads(path.read_text())
    result = read_result(data)
    assert (result.run, len(result.pods), result.verdict.what) == (
        data["run"],
        len(data["pods"]),
        data["verdict"]["what"],
    )
    assert f"{result.run}</" in render_run(result)


def fields(schema: dict[str, Any], path: str = "result") -> Iterator[tuple[str, dict[str, Any], list[str]]]:
    """Each object in a schema: its path, its fields, and those that it must have."""
    if "properties" in schema:
        yield path, schema["properties"], schema["required"]
    inner = [
        *schema.get("properties", {}).items(),
        *[("*", schema[key]) for key in ("items", "additionalProperties") if isinstance(schema.get(key), dict)],
    ]
    for name, one in inner:
        yield from fields(one, f"{path}.{name}")
    for one in schema.get("oneOf", ()):
        yield from fields(one, path)


def test_a_field_that_came_later_has_a_default() -> None:
    now = list(fields(result_schema()))
    new = [f"{path}.{name}" for path, _, needed in now if path in FIRST for name in needed if name not in FIRST[path]]
    assert new == [], f"results stored before lack {', '.join(new)} and could not be read: add it last, with a default"


def test_a_field_that_was_there_stays() -> None:
    now = {path: set(names) for path, names, _ in fields(result_schema())}
    gone = [f"{path}.{name}" for path, names in FIRST.items() for name in names if name not in now.get(path, ())]
    assert gone == [], f"whoever reads result.json relies on {', '.join(gone)}: another meaning is another VERSION"

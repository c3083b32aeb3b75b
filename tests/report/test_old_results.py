"""Results that were stored by earlier versions are read by this one, and made into a page.

tests/report/old has results of real runs, as they were stored; the names of the files begin with the commit that ran
them. A file is never changed; CONTRIBUTING.md says when and how one is added. first_fields.json has the fields that
have been there from the beginning.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.decide.result_reader import read_result
from agent.report.page import render_run
from agent.workbench.comparing.key_figures import key_figures
from scripts.result_schema import result_schema

OLD = Path(__file__).with_name("old")
RESULTS = sorted(OLD.glob("*-*.json"))
MEASURED = {
    "07f7a89-ddp": "44.14",  # ms, the median step
    "07f7a89-pai-megatron-qwen3": "640\u202f000",  # tokens/s
    "07f7a89-pai-megatron-qwen3-next": "6\u202f826\u202f667",
    "f547943-collectives": "0.13",  # GB/s of all_reduce
    "f547943-deepep": "70.50",  # GB/s of the dispatch over RDMA
    "f547943-nccl": "344.0",
    "f8e3d16-connectivity": "0.2717",  # GB/s of the slowest neighbours
    "f8e3d16-ddp": "73.56",
}
"""What people look for on the page of a result; the others measured nothing."""
GOLDEN = Path(__file__).parents[1] / "golden/files/results"
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
    page = render_run(result)
    assert f"{result.run}</" in page
    assert (path.stem in MEASURED) == bool(key_figures(result))
    assert f">{MEASURED.get(path.stem, result.run)}<" in page


def test_each_workload_has_a_stored_result() -> None:
    """Runs whose result.json has a golden file."""
    of_today = {path.stem.removesuffix("-fails") for path in GOLDEN.glob("*.json")} - {"first-run"}
    stored = {json.loads(path.read_text())["workload"] for path in RESULTS}
    assert of_today and of_today <= stored, "CONTRIBUTING.md says how to keep one"


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

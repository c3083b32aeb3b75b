"""Golden files: what the present code shows to the outside, to be the same after a change of layout.

A test only reads them. To change what one holds on purpose, run what its test says when it fails: the test once more
with A4_GOLDEN=renew, which writes the file; and commit it with what changes the behaviour.
"""

from __future__ import annotations

import difflib
import json
import os
import shlex
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

MAPS = (
    "pods.*.phases",
    "pods.*.inventory",
    "differences.*.odd",
    "launch.environment",
    "versions",
    "record.nodes",
    "record.ended",
    "sweeps.*.baseline.busbw",
)
"""Where result.json has names that are data."""
TYPES = {bool: "boolean", int: "number", float: "number", str: "text", type(None): "null"}
MOST_LINES = 60
"""What is shown of a difference."""
ROOT = Path(__file__).parents[2]
FILES = Path(__file__).with_name("files")
# Read when the tests are collected: later, no variable of the agent is left in the environment.
RENEWS = os.environ.get("A4_GOLDEN") == "renew"


def expect_golden(name: str, found: Any) -> None:
    """Compare a value of JSON with the golden file of that name."""
    path = FILES / f"{name}.json"
    text = json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if RENEWS:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    kept = path.read_text() if path.exists() else "null\n"
    if json.loads(text) != json.loads(kept):
        lines = difflib.unified_diff(kept.splitlines(), text.splitlines(), "kept", "found", n=1, lineterm="")
        shown = "\n".join([*islice(lines, MOST_LINES)])
        raise AssertionError(f"not what {path.relative_to(ROOT)} says. If it is meant: {command()}\n{shown}")


def command() -> str:
    """What is typed in the checkout to write the golden files of the test that runs."""
    test, _, _ = os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")
    return f"A4_GOLDEN=renew .venv/bin/python -m pytest -q -n0 {shlex.quote(test)}"


def expect_result(workload: str, found: Mapping[str, Any]) -> None:
    """The shape of a result.json."""
    expect_golden(f"results/{workload}", shape(found, MAPS))


def shape(value: Any, keyed: Iterable[str] = ()) -> Any:
    """The types of a value of JSON: of a list the shapes of its items, each once.

    keyed: paths such as "pods.*.inventory" below which names are data, such as ranks or devices, and shown as "*".
    """
    return _shape(value, "", frozenset(keyed))


def _shape(value: Any, path: str, keyed: frozenset[str]) -> Any:
    if isinstance(value, Mapping):
        if path in keyed:
            return {"*": _items(value.values(), f"{path}.*", keyed)}
        return {name: _shape(inner, f"{path}.{name}".lstrip("."), keyed) for name, inner in value.items()}
    if isinstance(value, list):
        return _items(value, f"{path}.*", keyed)
    return TYPES[type(value)]


def _items(values: Iterable[Any], path: str, keyed: frozenset[str]) -> list[Any]:
    shapes = {json.dumps(_shape(value, path, keyed), sort_keys=True) for value in values}
    return [json.loads(text) for text in sorted(shapes)]

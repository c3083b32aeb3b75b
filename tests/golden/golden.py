"""Golden files: what the present code shows to the outside, to be the same after a change of layout.

A golden file is made once (`A4_GOLDEN=write`, which never writes over one) and afterwards only read. To change what it
holds on purpose, delete the file and make it again in the commit that changes the behaviour.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
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
FILES = Path(__file__).with_name("files")
# Read when the tests are collected: later, no variable of the agent is left in the environment.
WRITES = os.environ.get("A4_GOLDEN") == "write"


def expect_golden(name: str, found: Any) -> None:
    """Compare a value of JSON with the golden file of that name."""
    path = FILES / f"{name}.json"
    text = json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if WRITES and not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"there is no golden file {name}: A4_GOLDEN=write makes it"
    assert json.loads(text) == json.loads(path.read_text()), f"{name} is not what the golden file says"


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

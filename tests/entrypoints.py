"""Programs of entrypoints/ as modules."""

from __future__ import annotations

import importlib.util
from typing import Any

from agent.paths import shipped


def load(name: str) -> Any:
    """The program of this name, without `.py`."""
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), shipped("entrypoints", f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""A wish for a run, as it travels."""

from __future__ import annotations

from typing import Any

import pytest

from agent.decide.runspec import RunSpec


def test_a_workload_is_all_that_it_takes() -> None:
    """What else there is, and how it travels: tests/test_wire.py."""
    assert RunSpec.from_json({"workload": "connectivity"}) == RunSpec("connectivity")
    wish = RunSpec("exec", ("a",), hosts=("1-2",), env={"A": "="}, timeout=60.0, without=0)
    assert RunSpec.from_json(wish.to_json()) == wish


def test_variables_do_not_show() -> None:
    assert "canary" not in repr(RunSpec("exec", env={"TOKEN": "canary"}))


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"workload": "exec", "args": "hostname"},
        {"workload": "exec", "nodes": -1},
        {"workload": "torchrun", "without": -1},
        {"workload": "exec", "timeout": -1},
        {"workload": "exec", "timeout": 1e9},
        {"workload": "exec", "stall": float("nan")},
        {"workload": "exec", "ranks": -1},
        {"workload": "exec", "per_node": -1},
        {"workload": "mpirun", "per_node": 1025},
        {"workload": "exec", "gate": "false"},
        {"workload": "exec", "args": ["a\0"]},
        {"workload": "exec", "cwd": "\0"},
        {"workload": "exec", "env": {"A": "\0"}},
        {"workload": "exec", "env": {"": "1"}},
        {"workload": "exec", "env": {"A=B": "1"}},
    ],
)
def test_anything_else_is_refused(data: Any) -> None:
    with pytest.raises(ValueError):
        RunSpec.from_json(data)

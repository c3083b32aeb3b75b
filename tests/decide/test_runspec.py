"""A wish for a run, as it travels."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.runspec import RunSpec

text = st.text(st.characters(exclude_characters="\0"), max_size=20)
names = st.text(st.characters(exclude_characters="\0="), min_size=1, max_size=20)
texts = st.lists(text, max_size=4).map(tuple)
limits = st.none() | st.floats(0, 1e9, exclude_max=True)
specs = st.builds(
    RunSpec,
    workload=text,
    args=texts,
    nodes=st.integers(0, 1000),
    hosts=texts,
    exclude=texts,
    ranks=st.integers(0, 10**6),
    per_node=st.integers(0, 64),
    env=st.dictionaries(names, text, max_size=4),
    cwd=text,
    timeout=limits,
    stall=limits,
    by=text,
    without=st.none() | st.integers(0, 10**6),
)


@given(specs)
def test_a_wish_survives_json(spec: RunSpec) -> None:
    assert RunSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@given(specs)
def test_what_a_later_version_adds_is_passed_over(spec: RunSpec) -> None:
    assert RunSpec.from_json({**spec.to_json(), "added-later": 1}) == spec


def test_a_workload_is_all_that_it_takes() -> None:
    assert RunSpec.from_json({"workload": "connectivity"}) == RunSpec("connectivity")


def test_variables_do_not_show() -> None:
    assert "canary" not in repr(RunSpec("exec", env={"TOKEN": "canary"}))


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "exec",
        {},
        {"workload": 7},
        {"workload": "exec", "args": "hostname"},
        {"workload": "exec", "args": [7]},
        {"workload": "exec", "hosts": {"a": 1}},
        {"workload": "exec", "nodes": -1},
        {"workload": "exec", "nodes": True},
        {"workload": "torchrun", "without": -1},
        {"workload": "torchrun", "without": "3"},
        {"workload": "exec", "ranks": "4"},
        {"workload": "exec", "per_node": 1.5},
        {"workload": "exec", "timeout": "60"},
        {"workload": "exec", "timeout": -1},
        {"workload": "exec", "stall": float("nan")},
        {"workload": "exec", "stall": True},
        {"workload": "exec", "env": ["A=1"]},
        {"workload": "exec", "env": {"A": 1}},
        {"workload": "exec", "cwd": None},
        {"workload": "exec", "by": 7},
    ],
)
def test_anything_else_is_refused(data: Any) -> None:
    with pytest.raises(ValueError):
        RunSpec.from_json(data)

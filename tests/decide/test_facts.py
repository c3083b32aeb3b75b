"""Facts on the wire."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.facts import Facts

text = st.text(max_size=20)
facts = st.builds(
    Facts,
    index=st.integers(0, 99_999),
    nonce=text,
    version=text,
    node=text,
    address=text,
    interface=text,
    slots=st.integers(1, 1024),
    gpus=st.integers(0, 16),
    places=st.dictionaries(text, st.lists(text, max_size=4).map(tuple), max_size=3),
    addresses=st.dictionaries(text, text, max_size=3),
    warnings=st.lists(text, max_size=3).map(tuple),
)


@given(facts)
def test_facts_survive_json(one: Facts) -> None:
    assert Facts.from_json(json.loads(json.dumps(one.to_json()))) == one


@given(facts)
def test_what_a_later_version_adds_is_passed_over(one: Facts) -> None:
    assert Facts.from_json({**one.to_json(), "added-later": 1}) == one


GOOD: dict[str, Any] = Facts(0, "n", "1", "node", "10.0.0.1", "eth0", 8).to_json()


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"places": {}, "warnings": []},
        {name: value for name, value in GOOD.items() if name != "index"},
        {**GOOD, "places": ["a"]},
        {**GOOD, "places": {"a": 1}},
        {**GOOD, "warnings": 7},
        [],
        7,
    ],
)
def test_anything_else_is_refused(data: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        Facts.from_json(data)

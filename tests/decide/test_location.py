"""Places out of what users and the metadata server say."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.location import Place, location_text, parse_location, parse_topology

FULL = {"cluster": "c", "block": "b", "subBlock": "s", "host": "h"}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("/c/b/s/h", ("c", "b", "s", "h")),
        ("/cluster-1/rack_2/host.3", ("cluster-1", "rack_2", "host.3")),
        ("/c", ("c",)),
        ("/c/", ("c",)),
        ("//c//b", ("c", "b")),
        (f"/{'0' * 32}/{'1' * 32}/{'2' * 32}/{'3' * 32}", ("0" * 32, "1" * 32, "2" * 32, "3" * 32)),
    ],
)
def test_a_path_is_a_place(text: str, place: Place) -> None:
    assert parse_location(text) == place


HOSTILE = [
    "",
    "/",
    "//",
    "c/b",
    "/c/b/s/h/x",
    "/c\n/b",
    "/c/b\n",
    "/c b",
    "/$(x)",
    "/`x`",
    "/c;x",
    "/c/b slots=99",
    "<html>/</html>",
    "/é",
    "/c\0",
    "/" + "a" * 256,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_anything_else_is_no_place(text: str) -> None:
    assert parse_location(text) is None


@given(st.text())
def test_a_place_holds_nothing_that_a_file_or_shell_would_read_otherwise(text: str) -> None:
    place = parse_location(text)
    assert place is None or all(part and not set(part) - set(SAFE) for part in place)


SAFE = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
parts = st.text(SAFE, min_size=1, max_size=32)


@given(st.lists(parts, min_size=1, max_size=4))
def test_the_text_of_a_place_is_read_back(place: list[str]) -> None:
    assert parse_location(location_text(tuple(place))) == tuple(place)


def test_no_place_is_a_dash() -> None:
    assert location_text(()) == "-"


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (FULL, ("c", "b", "s", "h")),
        ({"cluster": "c", "block": "b", "subblock": "s", "host": "h"}, ("c", "b", "s", "h")),
        ({**FULL, "subblock": "other"}, ("c", "b", "s", "h")),
        ({**FULL, "more": [1]}, ("c", "b", "s", "h")),
        ({"cluster": "c", "block": "b", "host": "h"}, ("c", "b")),
        ({**FULL, "block": ""}, ("c",)),
        ({**FULL, "block": None}, ("c",)),
        ({"cluster": "c"}, ("c",)),
    ],
)
def test_topology(data: dict[str, object], place: Place) -> None:
    assert parse_topology(json.dumps(data)) == place


@pytest.mark.parametrize(
    "data",
    [
        {},
        [],
        "text",
        7,
        None,
        ["cluster"],
        {"block": "b", "host": "h"},
        {**FULL, "cluster": 7},
        {**FULL, "block": ["b"]},
        {**FULL, "block": {"x": "b"}},
        {**FULL, "subBlock": True},
        {**FULL, "host": "a b"},
        {**FULL, "host": "a\n"},
        {**FULL, "host": "$(x)"},
        {**FULL, "host": "a/b"},
        {**FULL, "host": "x" * 129},
    ],
)
def test_malformed_topology_is_no_place(data: object) -> None:
    assert parse_topology(json.dumps(data)) is None


@pytest.mark.parametrize("text", ["", "{", "<html></html>", "/c/b", "[" * 4000, "NaN", '{"cluster": "c"} x', "\0"])
def test_text_that_is_no_json_object_is_no_place(text: str) -> None:
    assert parse_topology(text) is None


@given(st.dictionaries(st.sampled_from(["cluster", "block", "subBlock", "subblock", "host"]), st.text() | parts))
def test_parts_of_any_text_make_a_clean_place_or_none(data: dict[str, str]) -> None:
    place = parse_topology(json.dumps(data))
    assert place is None or (1 <= len(place) <= 4 and all(part and not set(part) - set(SAFE) for part in place))

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
        ("/cluster-1/rack_2/host.3", ("cluster-1", "rack_2", "host.3")),
        ("/c/", ("c",)),
        ("//c//b", ("c", "b")),
        (f"/{'0' * 32}/{'1' * 32}/{'2' * 32}/{'3' * 32}", ("0" * 32, "1" * 32, "2" * 32, "3" * 32)),
    ],
)
def test_a_path_is_a_place(text: str, place: Place) -> None:
    assert parse_location(text) == place


@pytest.mark.parametrize(
    "text", ["", "/", "//", "c/b", "/c/b/s/h/x", "/c\n/b", "/c/b\n", "/é", "/c\0", "/" + "a" * 256]
)
def test_anything_else_is_no_place(text: str) -> None:
    assert parse_location(text) is None


NAMES = ["cluster", "block", "subBlock", "host"]
pieces = st.text(max_size=3) | st.sampled_from(["a", "a slots=99", "$(x)", "`x`", "a;b", "<html>", "a\n"])


@given(st.lists(pieces, max_size=5))
def test_a_place_holds_nothing_that_a_file_or_shell_would_read_otherwise(given: list[str]) -> None:
    topology = json.dumps(dict(zip(NAMES, given, strict=False)))
    for place in (parse_location("/" + "/".join(given)), parse_topology(topology)):
        assert place is None or (1 <= len(place) <= 4 and all(part and not set(part) - set(SAFE) for part in place))


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
        ({"cluster": "c", "block": "b", "subblock": "s", "host": "h"}, ("c", "b", "s", "h")),
        ({**FULL, "subblock": "other"}, ("c", "b", "s", "h")),
        ({**FULL, "more": [1]}, ("c", "b", "s", "h")),
        ({"cluster": "c", "block": "b", "host": "h"}, ("c", "b")),
        ({**FULL, "block": ""}, ("c",)),
        ({**FULL, "block": None}, ("c",)),
        ({"cluster": "c"}, ("c",)),
        ({"block": "b", "host": "h"}, None),
        ({**FULL, "block": ["b"]}, None),
        ({**FULL, "subBlock": True}, None),
        ({**FULL, "host": "x" * 129}, None),
    ],
)
def test_topology(data: dict[str, object], place: Place | None) -> None:
    assert parse_topology(json.dumps(data)) == place


@pytest.mark.parametrize("text", ["", "{", "<html></html>", "/c/b", "[" * 4000, "NaN", '{"cluster": "c"} x', "\0"])
def test_text_that_is_no_json_object_is_no_place(text: str) -> None:
    assert parse_topology(text) is None

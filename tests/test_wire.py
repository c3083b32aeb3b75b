"""Records as JSON and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.wire import WireError, from_json, to_json, without_none
from tests.laws import examples


class Point(NamedTuple):
    name: str
    at: int = 0


ORIGIN = Point("origin")


class Other(NamedTuple):
    title: str


class Nothing(NamedTuple):
    pass


@dataclass(frozen=True)
class Inner:
    text: str
    number: float | None = None


@dataclass(frozen=True)
class Everything:
    text: str
    whole: Annotated[int, ("minimum", 0)]
    number: float
    flag: bool
    kind: Literal["a", "b"]
    data: bytes
    inner: Inner | None
    pair: tuple[int, str]
    names: tuple[str, ...] = ()
    numbers: Sequence[int] = ()
    chosen: frozenset[int] = frozenset()
    by_index: Mapping[int, Inner] = field(default_factory=dict)
    by_name: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    cell: str | float | bool | None = None
    point: Point = ORIGIN
    rest: Any = None


text, number = st.text(), st.floats(allow_nan=False, allow_infinity=False)
inners = st.builds(Inner, text, st.none() | number)
everything = st.builds(
    Everything,
    text=text,
    whole=st.integers(),
    number=number,
    flag=st.booleans(),
    kind=st.sampled_from(["a", "b"]),
    data=st.binary(),
    inner=st.none() | inners,
    pair=st.tuples(st.integers(), text),
    names=st.lists(text).map(tuple),
    numbers=st.lists(st.integers()).map(tuple),
    chosen=st.frozensets(st.integers()),
    by_index=st.dictionaries(st.integers(), inners, max_size=3),
    by_name=st.dictionaries(text, st.lists(number).map(tuple), max_size=3),
    cell=text | number | st.booleans() | st.none(),
    point=st.builds(Point, text, st.integers()),
)


@examples(100)
@given(everything)
def test_what_is_written_is_read(value: Everything) -> None:
    assert from_json(Everything, json.loads(json.dumps(to_json(value), allow_nan=False))) == value


GOOD = to_json(Everything("t", 1, 1.5, True, "a", b"x", Inner("i"), (1, "p")))


def test_the_form() -> None:
    assert to_json(Everything("t", 1, 1.5, True, "a", b"\x00", None, (1, "p"), chosen=frozenset({2, 1}))) == {
        **GOOD,
        "data": "AA==",
        "inner": None,
        "chosen": [1, 2],
    }
    assert (to_json(Nothing()), from_json(Nothing, {})) == ({}, Nothing())


def test_names_that_are_not_known_are_passed_over() -> None:
    later = {**GOOD, "later": 1, "inner": {"text": "i", "later": 1}}
    assert from_json(Everything, later) == from_json(Everything, GOOD)


def test_what_has_a_default_may_be_missing() -> None:
    assert from_json(Inner, {"text": "i"}) == Inner("i")
    assert from_json(Point, {"name": "p"}) == Point("p")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"text": 7}, "text is not a text"),
        ({"text": None}, "text is not a text"),
        ({"whole": 1.5}, "whole is not a whole number"),
        ({"whole": True}, "whole is not a whole number"),
        ({"number": "1"}, "number is not a number"),
        ({"number": False}, "number is not a number"),
        ({"flag": 1}, "flag is not true or false"),
        ({"kind": "c"}, "kind is 'c', not one of a, b"),
        ({"data": "?"}, "data is not base64"),
        ({"inner": []}, "inner is not an object"),
        ({"inner": {}}, "inner.text is missing"),
        ({"inner": {"text": "i", "number": "x"}}, "inner.number is not a number"),
        ({"pair": [1]}, "pair has 1 items, not 2"),
        ({"names": "abc"}, "names is not a list"),
        ({"names": ["a", 7]}, r"names\[1\] is not a text"),
        ({"by_index": {"one": {"text": "i"}}}, "by_index has a name that is not a whole number: 'one'"),
        ({"by_index": {"1": {}}}, "by_index.1.text is missing"),
        ({"by_name": {"a": [None]}}, r"by_name.a\[0\] is not a number"),
        ({"cell": []}, "cell is not a text, a number, true, false or null"),
        ({"point": {"at": 1}}, "point.name is missing"),
    ],
)
def test_what_is_wrong_is_said_with_its_path(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(WireError, match=why):
        from_json(Everything, {**GOOD, **changes})


@pytest.mark.parametrize("data", [None, [], 7, "text"])
def test_what_is_no_object_at_all(data: object) -> None:
    with pytest.raises(WireError, match=r"^it is not an object$"):
        from_json(Inner, data)


def test_records_of_a_union_are_told_apart_by_their_names() -> None:
    class Holder(NamedTuple):
        one: Point | Other

    for one in (Point("a", 3), Other("a")):
        assert from_json(Holder, to_json(Holder(one))) == Holder(one)
    with pytest.raises(WireError, match=r"^one is none of Point, Other$"):
        from_json(Holder, {"one": {"name": "a"}})


def test_a_whole_number_is_a_number_however_large() -> None:
    assert from_json(Inner, {"text": "", "number": 3}) == Inner("", 3.0)
    assert from_json(Inner, {"text": "", "number": 10**400}).number == float("inf")
    with pytest.raises(WireError, match="number is not a number"):
        from_json(Inner, {"text": "", "number": float("nan")})


def test_without_none() -> None:
    assert without_none({"a": None, "b": [{"c": None, "d": 0}], "e": ""}) == {"b": [{"d": 0}], "e": ""}


def test_a_type_that_no_json_has_is_a_bug() -> None:
    @dataclass
    class Odd:
        one: complex

    with pytest.raises(TypeError, match="cannot be read from JSON"):
        from_json(Odd, {"one": 1})

"""Messages of the control channel."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.messages import Message, decode, encode
from tests.laws import examples

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
messages = st.dictionaries(st.text(), values, max_size=5).flatmap(
    lambda rest: st.text().map(lambda kind: {**rest, "type": kind})
)


@examples(40)
@given(messages)
def test_a_message_is_one_line_and_is_read_back(message: Message) -> None:
    line = encode(message)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert line.isascii()
    assert decode(line[:-1]) == message


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"null",
        b"7",
        b"[]",
        b'"type"',
        b"{}",
        b'{"type": 7}',
        b'{"type": null}',
        b"\xff\xfe{",
        b"[" * 100_000,
    ],
)
def test_anything_else_is_a_bad_message(line: bytes) -> None:
    with pytest.raises(ValueError) as caught:
        decode(line)
    assert len(str(caught.value)) < 400


@given(st.binary())
def test_any_bytes_are_a_message_or_a_bad_message(line: bytes) -> None:
    try:
        assert isinstance(decode(line)["type"], str)
    except ValueError:
        pass

"""Messages of the control channel: one line each, and none is longer than a line may be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.ending import JobEnd
from agent.decide.messages import (
    COORDINATOR_SAYS,
    MOST_BYTES,
    SHORTENED,
    WORKER_SAYS,
    Message,
    SendResult,
    decode,
    encode,
    heard,
    line_of,
    message,
)
from agent.errors import AgentError
from agent.machine import stream

texts = st.text() | st.sampled_from(["\0", "\x1b", "\ufffd", "é", "x"]).map(lambda one: one * 1500)
values = st.recursive(
    st.none() | st.integers(0, 9) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
messages = st.builds(lambda kind, value: {"type": kind, "value": value}, st.sampled_from(SHORTENED), values)


@given(messages, st.integers(3000, 9000))
def test_what_is_for_people_is_cut_until_it_fits(said: Message, most: int) -> None:
    whole, line = encode(said), line_of(said, most)
    assert decode(whole[:-1]) == said
    assert whole.endswith(b"\n") and whole.count(b"\n") == 1 and whole.isascii()
    assert len(line) <= most
    assert_cut(decode(line[:-1]), said)
    assert line == whole or len(whole) > most


@given(
    st.binary()
    | st.sampled_from([b"{", b"null", b"7", b"[]", b'"type"', b"{}", b'{"type": 7}', b'{"type": null}', b"[" * 100_000])
)
def test_any_bytes_are_a_message_or_a_bad_message(line: bytes) -> None:
    try:
        assert isinstance(decode(line)["type"], str)
    except ValueError as bad:
        assert len(str(bad)) < 400


def assert_cut(found: Any, given: Any) -> None:
    """It is the same but for the ends of texts."""
    if isinstance(given, dict):
        assert found.keys() == given.keys()
        for name in given:
            assert_cut(found[name], given[name])
    elif isinstance(given, list):
        assert len(found) == len(given)
        for one, other in zip(found, given, strict=True):
            assert_cut(one, other)
    else:
        assert found == given or (found.endswith("…") and given.startswith(found[:-1]))


@pytest.mark.parametrize("byte", ["\ufffd", "\0", "\x1b"])
def test_the_end_of_a_job_gets_through_whatever_is_in_it(byte: str) -> None:
    end = JobEnd(71, "sshd ended", why=byte * 3_000_000)
    line = line_of(message(SendResult(end)))
    assert len(line) < stream.MOST_BYTES - 60, "room for its number and what was seen"
    told = heard(decode(line[:-1]), COORDINATOR_SAYS)
    assert isinstance(told, SendResult) and (told.end.code, told.end.what) == (71, "sshd ended")


@pytest.mark.parametrize("kind", sorted({*COORDINATOR_SAYS, *WORKER_SAYS} - {*SHORTENED}))
def test_what_must_arrive_whole_is_refused(kind: str) -> None:
    with pytest.raises(AgentError) as caught:
        line_of({"type": kind, "text": "x" * MOST_BYTES})
    assert kind in caught.value.what and str(MOST_BYTES) in caught.value.what


def test_too_many_texts_are_refused_too() -> None:
    with pytest.raises(AgentError):
        line_of({"type": "cluster", "lost": ["x"] * 100}, 200)

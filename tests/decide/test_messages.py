"""Messages of the control channel: one line each, and none is longer than a line may be."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide import messages
from agent.decide.ending import JobEnd
from agent.errors import AgentError
from agent.machine import stream

BOTH = [*messages.COORDINATOR_SAYS.items(), *messages.WORKER_SAYS.items()]


def test_a_type_is_the_name_of_its_class_without_a_leading_tell() -> None:
    """So that whoever reads a line of the channel finds its class, and the other way round."""
    named = {kind: re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__.removeprefix("Tell")).lower() for _, kind in BOTH}
    assert [(name, kind.__name__) for name, kind in BOTH if name != named[kind]] == []
    assert len(set(BOTH)) == len(dict(BOTH)) == len(named), "a type has two classes, or a class two types"


texts = st.text() | st.sampled_from(["\0", "\x1b", "\ufffd", "é", "x"]).map(lambda one: one * 1500)
values = st.recursive(
    st.none() | st.integers(0, 9) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
any_message = st.builds(lambda kind, value: {"type": kind, "value": value}, st.sampled_from(messages.SHORTENED), values)


@given(any_message, st.integers(3000, 9000))
def test_what_is_for_people_is_cut_until_it_fits(said: messages.Message, most: int) -> None:
    whole, line = messages.encode(said), messages.line_of(said, most)
    assert messages.decode(whole[:-1]) == said
    assert whole.endswith(b"\n") and whole.count(b"\n") == 1 and whole.isascii()
    assert len(line) <= most
    assert_cut(messages.decode(line[:-1]), said)
    assert line == whole or len(whole) > most


@given(
    st.binary()
    | st.sampled_from([b"{", b"null", b"7", b"[]", b'"type"', b"{}", b'{"type": 7}', b'{"type": null}', b"[" * 100_000])
)
def test_any_bytes_are_a_message_or_a_bad_message(line: bytes) -> None:
    try:
        assert isinstance(messages.decode(line)["type"], str)
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
    line = messages.line_of(messages.message(messages.TellResult(end)))
    assert len(line) < stream.MOST_BYTES - 60, "room for its number and what was seen"
    told = messages.heard(messages.decode(line[:-1]), messages.COORDINATOR_SAYS)
    assert isinstance(told, messages.TellResult) and (told.end.code, told.end.what) == (71, "sshd ended")


@pytest.mark.parametrize("kind", sorted({*messages.COORDINATOR_SAYS, *messages.WORKER_SAYS} - {*messages.SHORTENED}))
def test_what_must_arrive_whole_is_refused(kind: str) -> None:
    with pytest.raises(AgentError) as caught:
        messages.line_of({"type": kind, "text": "x" * messages.MOST_BYTES})
    assert kind in caught.value.what and str(messages.MOST_BYTES) in caught.value.what


def test_too_many_texts_are_refused_too() -> None:
    with pytest.raises(AgentError):
        messages.line_of({"type": "cluster", "lost": ["x"] * 100}, 200)

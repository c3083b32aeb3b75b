"""What is cut shows no part of a word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cutting import cut_at_word


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a --token=secret", "a …"), ("a b", "a b"), ("abcdefghijkl", "…")],
)
def test_no_word_is_shown_in_part(text: str, expected: str) -> None:
    assert cut_at_word(text, 10) == expected


@given(st.text(), st.integers(2, 200))
def test_it_is_short_enough(text: str, most: int) -> None:
    assert len(cut_at_word(text, most)) <= most

"""What is cut shows no part of a word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cutting import cut_at_word, first_of, json_size, visible
from agent.decide.ending import JobEnd, masked
from agent.decide.masking import MARK, Masker
from agent.log import Log


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a --token=secret", "a …"), ("a b", "a b"), ("abcdefghijkl", "…")],
)
def test_no_word_is_shown_in_part(text: str, expected: str) -> None:
    assert cut_at_word(text, 10) == expected


@given(st.text(), st.integers(2, 200))
def test_it_is_short_enough(text: str, most: int) -> None:
    assert len(cut_at_word(text, most)) <= most


@given(st.text(), st.integers(20, 200))
def test_a_beginning_with_its_mark_is_short_enough_as_json(text: str, most: int) -> None:
    cut = first_of(text, most, "…")
    assert cut == text if json_size(text) <= most else cut.endswith("…") and json_size(cut) <= most


WORDS = "\x1b[31mred\x07\x1b]0;title\x07\ttab\nline\x7f\x9b2J"
SEEN = r"\x1b[31mred\x07\x1b]0;title\x07" + "\ttab\n" + r"line\x7f\x9b2J"


def test_no_terminal_obeys_what_a_program_said_in_our_messages() -> None:
    shown: list[str] = []
    end = masked(JobEnd(1, WORDS, WORDS, WORDS), str)
    assert (end.what, end.where, end.why) == (SEEN, SEEN, SEEN)
    log = Log()
    log.write = lambda data: shown.append(data.decode())
    log.error(WORDS)
    assert [line.partition("error: ")[2] for line in shown[0].splitlines()] == SEEN.splitlines()


def test_a_secret_is_masked_however_it_is_shown() -> None:
    secret = "a secret\x1bwith an escape"
    assert Masker([secret]).text(f"so {secret}; {visible(secret)}") == f"so {MARK}; {MARK}"

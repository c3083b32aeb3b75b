"""The last words of the ranks of a run that hangs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.decide.tail import MOST_LINE, MOST_TEXT, last_words


def test_without_files_there_is_nothing_to_say() -> None:
    assert last_words({}) == ""


def test_the_last_lines_of_each_rank_by_number() -> None:
    outputs = {
        "1/rank.10/stdout": "step 1\nstep 2\nstep 3\n",
        "1/rank.2/stdout": "up\n\nwaiting for rank 10\n\n",
        "1/rank.2/stderr": "",
        "1/rank.10/stderr": "\n",
    }
    assert last_words(outputs, 2) == (
        "last output of every rank\n\n"
        "1/rank.2/stdout:\n  \n  waiting for rank 10\n\n"
        "1/rank.10/stdout:\n  step 2\n  step 3\n\n"
        "nothing in 1/rank.2/stderr, 1/rank.10/stderr\n"
    )


def test_a_progress_bar_is_shown_as_it_stands() -> None:
    assert last_words({"0/stdout.log": "start\r\n 1%\r 2%\r 3%"}) == (
        "last output of every rank\n\n0/stdout.log:\n  start\n   3%\n"
    )


def test_a_long_line_is_cut() -> None:
    assert f"  {'x' * MOST_LINE} …\n" in last_words({"a": "x" * 100_000})


@given(st.dictionaries(st.text(max_size=30), st.text(max_size=2000), max_size=8), st.integers(1, 30))
def test_every_file_is_named_and_none_takes_the_room_of_others(outputs: dict[str, str], lines: int) -> None:
    text = last_words(outputs, lines)
    for name, output in outputs.items():
        if output.strip():
            assert f"{name}:\n" in text


def test_many_files_stay_within_bounds() -> None:
    outputs = {f"1/rank.{rank}/stdout": f"{'x' * 300}\n" * 50 for rank in range(400)}
    text = last_words(outputs, 20)
    assert len(text) <= MOST_TEXT + 2000
    assert all(f"{name}:\n  x" in text for name in outputs)

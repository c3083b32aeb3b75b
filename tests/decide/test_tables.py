"""The text-table renderer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.tables import render


def test_columns_are_aligned_and_numbers_flush_right() -> None:
    text = render(["pod", "GB/s", "note"], [["a", "1.5", ""], ["long-name", "12.25", "slow"]], right={1})
    assert text == "pod         GB/s  note\na            1.5\nlong-name  12.25  slow\n"
    assert render(["a", "b"], []) == "a  b\n", "no rows"
    assert render(["a"], [["x\ny\x1b[1m"]]) == "a\nx y [1m\n", "a line break makes no second line"
    assert render(["a", "b"], [["日本", "1"], ["x", "2"]]) == "a     b\n日本  1\nx     2\n", "they are wide"


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="a row has 1 cells, the header 2"):
        render(["a", "b"], [["x"]])


@given(st.integers(1, 5).flatmap(lambda n: st.lists(st.lists(st.text(), min_size=n, max_size=n), min_size=1)))
def test_one_line_per_row_and_no_trailing_spaces(rows: list[list[str]]) -> None:
    lines = render(rows[0], rows[1:], right={0}).split("\n")
    assert lines.pop() == ""
    assert len(lines) == len(rows)
    assert all(line == line.rstrip() for line in lines)

"""Marks of ranks at the beginning of lines."""

from __future__ import annotations

import pytest

from agent.decide.tail import rank_of


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        (b"[rank13]: Traceback (most recent call last):", 13),
        (b"[rank13]:[E1122 13:09:40.1 ProcessGroupNCCL.cpp:632] watchdog", 13),
        (b"[default5]:step 3", 13),  # torchrun counts the ranks of its pod
        (b"[1,13]<stdout>:step 3", 13),
        (b"[1,13]<stderr>: step 3", 13),
        (b"[prterun-pod-0-7@1,13]<stdout>: step 3", 13),
        (b"step [rank13]: 3", None),
        (b"[13]: no mark", None),
        (b"[2026-03-04 12:30,13]: no mark", None),
        (b"", None),
    ],
)
def test_the_rank_that_printed_a_line(line: bytes, rank: int | None) -> None:
    assert rank_of(line, 8) == rank

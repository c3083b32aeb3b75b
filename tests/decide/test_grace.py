"""The shares of the grace time fit into it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.grace import (
    LEAST_STORE_SECONDS,
    RESERVED_SECONDS,
    TELL_SECONDS,
    leave_seconds,
    part_seconds,
    run_seconds,
    store_seconds,
    term_seconds,
)

SHORTEST = 10.0
"""Less leaves no time for a run to end in order."""


@given(st.floats(SHORTEST, 86400))
def test_a_run_is_ended_and_told_within_the_grace_time(grace: float) -> None:
    assert run_seconds(grace) + TELL_SECONDS <= leave_seconds(grace) + 1e-9
    assert leave_seconds(grace) + RESERVED_SECONDS == pytest.approx(grace)


@given(st.floats(0, 86400))
def test_whatever_it_is_nobody_gets_less_than_nothing(grace: float) -> None:
    assert 1.0 <= term_seconds(grace) < part_seconds(grace)
    assert 0 < run_seconds(grace) <= part_seconds(grace)


@given(st.floats(0, 86400), st.floats(0, 86400))
def test_more_time_is_never_worse(one: float, other: float) -> None:
    less, more = sorted((one, other))
    for share in (term_seconds, part_seconds, run_seconds, leave_seconds, store_seconds):
        assert share(less) <= share(more)


@pytest.mark.parametrize(
    ("grace", "term", "run"),
    [(30.0, 10.0, 20.0), (20.0, 7.0, 12.0), (15.0, 2.0, 7.0), (10.0, 1.0, 2.0), (0.0, 1.0, 2.0)],
)
def test_the_shares(grace: float, term: float, run: float) -> None:
    assert (term_seconds(grace), run_seconds(grace)) == (term, run)


@pytest.mark.parametrize(("left", "seconds"), [(None, 30.0), (90.0, 30.0), (12.0, 12.0), (-5.0, LEAST_STORE_SECONDS)])
def test_the_time_to_store(left: float | None, seconds: float) -> None:
    assert store_seconds(left) == seconds

"""The shares of the grace time fit into it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.grace import (
    LEAST_TERM_SECONDS,
    MOST_STORE_SECONDS,
    RESERVED_SECONDS,
    Grace,
    divided,
    most_warn_seconds,
    store_seconds,
)

SHORTEST = 4.0
"""Less leaves nothing beside what is Kubernetes'."""
SECONDS = st.floats(0, 86400)


@given(SECONDS, SECONDS)
def test_more_time_is_never_worse(one: float, other: float) -> None:
    less, more = sorted((one, other))
    assert all(less <= more + 1e-9 for less, more in zip(divided(less), divided(more), strict=True))
    assert store_seconds(less) <= store_seconds(more)


@given(SECONDS, SECONDS)
def test_a_warning_is_taken_from_the_workloads_time(grace: float, warn: float) -> None:
    """The shares are the grace time less what is left for Kubernetes, and nobody gets less than nothing."""
    shares = divided(grace, warn)
    assert sum(shares) + RESERVED_SECONDS == pytest.approx(max(grace, SHORTEST))
    assert shares.leave == pytest.approx(sum(shares))
    assert min(shares) >= 0
    assert 0 < shares.own_term <= shares.save
    assert 0 < shares.own_part <= shares.part < shares.leave
    assert shares.save == pytest.approx(divided(grace).save)
    if warn <= most_warn_seconds(grace):
        assert shares.warn == warn
        assert not warn or shares.term >= LEAST_TERM_SECONDS - 1e-9


@pytest.mark.parametrize(
    ("grace", "warn", "shares", "own"),
    [
        (120.0, 0.0, Grace(0, 100, 3, 7, 5, 2), 10),
        (120.0, 60.0, Grace(60, 40, 3, 7, 5, 2), 10),
        (30.0, 0.0, Grace(0, 10, 3, 7, 5, 2), 10),
        (30.0, 8.0, Grace(8, 2, 3, 7, 5, 2), 10),
        (16.5, 0.0, Grace(0, 5, 1.5, 3.5, 2.5, 1), 5),
    ],
)
def test_the_shares(grace: float, warn: float, shares: Grace, own: float) -> None:
    assert divided(grace, warn) == pytest.approx(shares)
    assert divided(grace, warn).own_term == own


@pytest.mark.parametrize(("grace", "most"), [(120.0, 98.0), (30.0, 8.0), (10.0, 0.6), (5.0, 0.0), (0.1, 0.0)])
def test_the_longest_warning(grace: float, most: float) -> None:
    assert most_warn_seconds(grace) == pytest.approx(most, abs=0.01)


@pytest.mark.parametrize(
    ("left", "seconds"),
    [(None, MOST_STORE_SECONDS), (90.0, MOST_STORE_SECONDS), (12.0, 12.0), (-5.0, 1.0)],
)
def test_the_time_to_store(left: float | None, seconds: float) -> None:
    assert store_seconds(left) == seconds

"""The fence passes, and all is killed, before pod 0 can give a pod up; and which leases leave time for that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.fence import (
    BEATS,
    DRIFT,
    KILL_SECONDS,
    LEAST_LEASE_WITH_LIVES,
    LOOK_SECONDS,
    check_lease,
    clear_seconds,
    fence_seconds,
    lease_problem,
)
from agent.errors import Exit, SettingsError
from agent.lifecycle.channel.link import beat_seconds
from agent.settings import LEAST_LEASE

LEASES = st.floats(LEAST_LEASE_WITH_LIVES, 3600)
RATES = st.floats(1 - DRIFT / 2, 1 + DRIFT / 2)
"""How many seconds a clock counts in one."""


@given(LEASES, st.floats(0, 600), RATES, RATES)
def test_nothing_is_left_when_the_lease_is_over(lease: float, under_way: float, its: float, pod_0s: float) -> None:
    sent, received = 0.0, under_way
    dead = sent + fence_seconds(lease) / its + LOOK_SECONDS + KILL_SECONDS
    assert dead < received + lease / pod_0s


@given(LEASES, st.floats(0, 600), st.floats(0, 600))
def test_a_pod_that_is_given_up_early_is_waited_for(lease: float, under_way: float, silent: float) -> None:
    received = under_way
    dead = fence_seconds(lease) + LOOK_SECONDS + KILL_SECONDS
    assert dead < received + silent + clear_seconds(lease, silent)


@given(LEASES)
def test_beats_that_are_lost_have_their_time(lease: float) -> None:
    assert fence_seconds(lease) >= BEATS * beat_seconds(lease)


def test_a_shorter_lease_leaves_less() -> None:
    assert fence_seconds(LEAST_LEASE_WITH_LIVES - 1) < BEATS * beat_seconds(LEAST_LEASE_WITH_LIVES - 1)


@pytest.mark.parametrize(("lease", "seconds"), [(30, 25.2), (10, 5.4), (300, 292.5), (3, 0)])
def test_usual_leases(lease: float, seconds: float) -> None:
    assert fence_seconds(lease) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("lease", "lives", "fits"),
    [
        (LEAST_LEASE_WITH_LIVES, 1, True),
        (LEAST_LEASE_WITH_LIVES - 0.5, 1, False),
        (LEAST_LEASE, 1000, False),
        (LEAST_LEASE, 0, True),
        (LEAST_LEASE, None, True),
    ],
)
def test_a_lease_that_is_too_short_is_refused_for_runs_with_lives(lease: float, lives: int | None, fits: bool) -> None:
    assert bool(lease_problem(lease, lives or 0)) is not fits
    if fits:
        check_lease(lease, lives)
        return
    with pytest.raises(
        SettingsError, match=f"A4_LEASE_SECONDS={lease:g} should be at least {LEAST_LEASE_WITH_LIVES}"
    ) as caught:
        check_lease(lease, lives)
    assert caught.value.code is Exit.SETTINGS

"""When to try again, as values."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenacity.wait import wait_base

PEER_FIRST_SECONDS = 0.05
PEER_MOST_SECONDS = 1.0


def peer_policy() -> wait_base:
    """Between two tries at one peer: quick at first, since pods start together, then once a second."""
    from tenacity import wait_exponential, wait_random

    growing = wait_exponential(multiplier=PEER_FIRST_SECONDS, exp_base=1.5, max=PEER_MOST_SECONDS)
    return growing + wait_random(0, PEER_FIRST_SECONDS)


def pause(policy: wait_base, attempt: int) -> float:
    """Seconds that `policy` asks for after `attempt` failed tries. The loop does the waiting."""
    from tenacity import RetryCallState, Retrying

    state = RetryCallState(Retrying(), None, (), {})
    state.attempt_number = attempt
    return float(policy(state))

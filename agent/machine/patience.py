"""Doing something again that the network has broken off."""

from __future__ import annotations

from collections.abc import Callable

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_exponential,
    wait_random,
)

LONGEST_WAIT = 60.0
"""Between two tries, in seconds."""


def retrying(
    again: type[Exception], tries: int, say: Callable[[str], None], there: Callable[[], int] = lambda: 0
) -> Retrying:
    """Calls something until it does not raise `again`. After so many tries in a row that brought nothing, that is
    raised; after each of these it waits longer, and `say` gets why and for how long.

    there: how much there is now; a try has brought something when that is more than ever before.
    """
    most = there()

    def count(state: RetryCallState) -> None:
        nonlocal most
        if (now := there()) > most:
            most, state.attempt_number = now, 0

    def tell(state: RetryCallState) -> None:
        assert state.outcome is not None and state.next_action is not None
        error = state.outcome.exception()
        assert error is not None
        say(f"{error.args[0]}; again in {state.next_action.sleep:.0f} s")

    return Retrying(
        retry=retry_if_exception_type(again),
        after=count,
        stop=stop_after_attempt(tries),
        wait=wait_exponential(max=LONGEST_WAIT) + wait_random(0, 0.5),
        before_sleep=tell,
        reraise=True,
    )

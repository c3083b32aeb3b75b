"""Doing something again that the network has broken off."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

LONGEST_WAIT = 60.0


class Patience:
    """Ends after so many tries in a row that have brought nothing, and waits longer after each of these.

    there: how much there is now; a try has brought something when that is more than ever since this was made.
    """

    def __init__(self, tries: int, there: Callable[[], int] = lambda: 0) -> None:
        self._tries = tries
        self._there = there
        self._most = there()
        self._idle = 0

    def keep_trying(self, act: Callable[[], None], again: type[Exception], say: Callable[[str], None]) -> None:
        """Do it until it is done. While it raises `again`, `say` gets why and when it is done the next time; at the end
        that is raised, and anything else at once."""
        from tenacity import RetryCallState, Retrying, retry_if_exception_type

        def tell(state: RetryCallState) -> None:
            assert state.outcome is not None and state.next_action is not None
            error = state.outcome.exception()
            assert error is not None
            say(f"{error.args[0]}; again in {state.next_action.sleep:.0f} s")

        Retrying(
            retry=retry_if_exception_type(again),
            after=self.count,
            stop=self.is_over,
            wait=self.seconds,
            before_sleep=tell,
            reraise=True,
        )(act)

    def count(self, state: Any) -> None:
        there = self._there()
        self._idle = 0 if there > self._most else self._idle + 1
        self._most = max(there, self._most)

    def is_over(self, state: Any) -> bool:
        return self._idle >= self._tries

    def seconds(self, state: Any) -> float:
        return min(2.0**self._idle - 1, LONGEST_WAIT) + random.random() / 2

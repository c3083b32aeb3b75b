"""When something is done again that the network has broken off: for policies of tenacity."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

LONGEST_WAIT = 60.0


class Patience:
    """Ends after so many tries in a row that have brought nothing, and waits longer after each of these.

    there: how much there is now; a try has brought something when that is more than ever since this was made. Given to
    tenacity.Retrying as `after=count`, `stop=is_over` and `wait=seconds`.
    """

    def __init__(self, tries: int, there: Callable[[], int] = lambda: 0) -> None:
        self._tries = tries
        self._there = there
        self._most = there()
        self._idle = 0

    def count(self, state: Any) -> None:
        there = self._there()
        self._idle = 0 if there > self._most else self._idle + 1
        self._most = max(there, self._most)

    def is_over(self, state: Any) -> bool:
        return self._idle >= self._tries

    def seconds(self, state: Any) -> float:
        return min(2.0**self._idle - 1, LONGEST_WAIT) + random.random() / 2

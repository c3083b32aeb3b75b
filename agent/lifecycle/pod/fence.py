"""How far the fence of this pod is: which of its beats pod 0 has acknowledged, and who has to know."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from agent.decide.fence import fence_seconds
from agent.machine.api import Clock
from agent.settings import Settings


class Fenced(NamedTuple):
    """Who is behind the fence."""

    moved: Callable[[], None]
    """The fence passes later than it would have."""
    judge: Callable[[], None]
    """Has it passed by now?"""


class Fence:
    """The same for all parts of runs that are behind it, but for those that began after the newest acknowledged beat.

    Pod 0 needs none against itself: for it the fence never passes.
    """

    def __init__(self, clock: Clock, settings: Settings) -> None:
        self._clock = clock
        self._seconds = math.inf if settings.is_coordinator else fence_seconds(settings.lease)
        self._number = 0
        self._sent: dict[int, float] = {}
        """When each beat was sent that is not acknowledged yet, by its number."""
        self._newest = -math.inf
        """When the newest was sent that is."""
        self._behind: list[Fenced] = []

    def add(self, fenced: Fenced) -> None:
        self._behind.append(fenced)

    def remove(self, fenced: Fenced) -> None:
        self._behind.remove(fenced)

    def passes(self, since: float) -> float:
        """When it passes for a part that pod 0 has heard of since."""
        return max(since, self._newest) + self._seconds

    def number_beat(self) -> int | None:
        """The number of the beat that is sent next, which is now; None: nobody is behind the fence, and pod 0 need not
        acknowledge it."""
        if not self._behind:
            self._sent.clear()
            return None
        self._number += 1
        self._sent[self._number] = self._clock.now()
        return self._number

    def acknowledged(self, number: int) -> None:
        """Pod 0 has heard the beat of that number."""
        sent = self._sent.get(number)
        if sent is None:
            return
        self._sent = {later: when for later, when in self._sent.items() if later > number}
        self._newest = max(self._newest, sent)
        for fenced in list(self._behind):
            fenced.moved()

    def judge(self) -> None:
        """Before anything is taken that pod 0 has said: an agent that stood still may find much that waits."""
        for fenced in list(self._behind):
            fenced.judge()

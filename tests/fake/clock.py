"""Simulated time: a heap of events, each run at its moment and in the order in which it was asked for."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

Action = Callable[[], None]
EPOCH = 1000.0
"""What the clock shows when a world begins: no machine's clock starts at 0."""


@dataclass
class Event:
    """Something that will happen; `cancel` makes it never happen."""

    action: Action | None

    def cancel(self) -> None:
        self.action = None


class Clock:
    """Time passes only from one event to the next."""

    def __init__(self) -> None:
        self.now = EPOCH
        self._events: list[tuple[float, int, Event]] = []
        self._count = 0

    @property
    def seconds(self) -> float:
        """Since the world began."""
        return self.now - EPOCH

    @property
    def pending(self) -> int:
        """How many events are to come."""
        return sum(event.action is not None for _, _, event in self._events)

    def after(self, seconds: float, action: Action) -> Event:
        self._count += 1
        event = Event(action)
        heapq.heappush(self._events, (self.now + max(0.0, seconds), self._count, event))
        return event

    def step(self, limit: float) -> bool:
        """Let the next event happen; False when there is none before `limit` (seconds of this world)."""
        while self._events and self._events[0][0] <= EPOCH + limit:
            when, _, event = heapq.heappop(self._events)
            if event.action is not None:
                self.now = when
                event.action()
                return True
        return False

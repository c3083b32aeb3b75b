"""Simulated time: a heap of events, each run at its moment and in the order in which it was asked for."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

Action = Callable[[], None]
EPOCH = 1000.0
"""What the clock shows when a world begins: no machine's clock starts at 0."""


@dataclass(order=True)
class Event:
    """Something that will happen; `cancel` makes it never happen."""

    when: float
    count: int
    action: Action | None = field(compare=False)

    def cancel(self) -> None:
        self.action = None


class Clock:
    """Time passes only from one event to the next."""

    def __init__(self) -> None:
        self.now = EPOCH
        self._events: list[Event] = []
        self._count = 0

    @property
    def seconds(self) -> float:
        """Since the world began."""
        return self.now - EPOCH

    @property
    def pending(self) -> int:
        """How many events are to come."""
        return sum(event.action is not None for event in self._events)

    def after(self, seconds: float, action: Action) -> Event:
        self._count += 1
        event = Event(self.now + max(0.0, seconds), self._count, action)
        heapq.heappush(self._events, event)
        return event

    def step(self, limit: float) -> bool:
        """Let the next event happen; False when there is none before `limit` (seconds of this world)."""
        while self._events and self._events[0].action is None:
            heapq.heappop(self._events)
        if not self._events or self._events[0].when > EPOCH + limit:
            return False
        event = heapq.heappop(self._events)
        self.now = event.when
        assert event.action is not None
        event.action()
        return True

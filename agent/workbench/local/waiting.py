"""What clients of a supervisor wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from agent.machine.loop import Loop

_POLL = 0.02


class Condition(NamedTuple):
    """Something a client waits for: tried at every event, with `poll` also in between."""

    is_met: Callable[[], bool]
    then: Callable[[], None]
    """Called once: when it is met, or its time is over."""
    poll: bool = False


class Conditions:
    """The conditions that have not come true yet."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._conditions: list[Condition] = []

    def add(self, condition: Condition, timeout: float | None) -> None:
        """Wait for it, `timeout` seconds at most."""
        self._conditions.append(condition)
        if timeout is not None:
            self._loop.later(timeout, lambda: self._finish(condition))
        self._look(condition)

    def drop(self, condition: Condition) -> None:
        """Nobody waits for it any more."""
        if condition in self._conditions:
            self._conditions.remove(condition)

    def notify(self) -> None:
        """Something has happened: try them all."""
        for condition in list(self._conditions):
            self._try(condition)

    def _look(self, condition: Condition) -> None:
        self._try(condition)
        if condition.poll and condition in self._conditions:
            self._loop.later(_POLL, lambda: self._look(condition))

    def _try(self, condition: Condition) -> None:
        if condition in self._conditions and condition.is_met():
            self._finish(condition)

    def _finish(self, condition: Condition) -> None:
        if condition in self._conditions:
            self._conditions.remove(condition)
            condition.then()

"""What clients of a supervisor wait for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.machine.loop import Loop

_POLL = 0.02


@dataclass
class Condition:
    """Something a client waits for: tried at every event, with `poll` also in between."""

    is_met: Callable[[], bool]
    then: Callable[[bool], None]
    poll: bool = False
    done: bool = False


class Conditions:
    """The conditions that have not come true yet."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._conditions: list[Condition] = []

    def add(self, condition: Condition, timeout: float | None) -> None:
        """Call `condition.then` with True once it is met, with False after `timeout` seconds."""
        self._conditions.append(condition)
        if timeout is not None:
            self._loop.later(timeout, lambda: self._finish(condition, False))
        if condition.poll:
            self._poll(condition)
        else:
            self._try(condition)

    def drop(self, condition: Condition) -> None:
        """Nobody waits for it any more."""
        if not condition.done:
            condition.done = True
            self._conditions.remove(condition)

    def notify(self) -> None:
        """Something has happened: try them all."""
        for condition in list(self._conditions):
            self._try(condition)

    def _poll(self, condition: Condition) -> None:
        self._try(condition)
        if not condition.done:
            self._loop.later(_POLL, lambda: self._poll(condition))

    def _try(self, condition: Condition) -> None:
        if not condition.done and condition.is_met():
            self._finish(condition, True)

    def _finish(self, condition: Condition, met: bool) -> None:
        if not condition.done:
            self.drop(condition)
            condition.then(met)

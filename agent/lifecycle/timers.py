"""Timers that end together."""

from __future__ import annotations

from collections.abc import Callable

from agent.machine.api import Machine, Timer


class Timers:
    """What one object still wants to do later, until it wants nothing more."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._timers: list[Timer] = []

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self._timers.append(self._machine.later(seconds, action))

    def cancel(self) -> None:
        """Forget all that has not happened yet. New ones may follow."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

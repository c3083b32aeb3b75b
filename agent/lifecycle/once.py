"""Callbacks for later: when something happens for the first time, and timers that end together."""

from __future__ import annotations

from collections.abc import Callable

from agent.machine.api import Machine, Timer


class Once:
    """Something that happens once. Callbacks run when it happens, or at once if it already has."""

    def __init__(self) -> None:
        self.happened = False
        self._waiting: list[Callable[[], None]] = []

    def when(self, action: Callable[[], None]) -> None:
        if self.happened:
            action()
        else:
            self._waiting.append(action)

    def happen(self) -> None:
        """Later calls do nothing."""
        self.happened = True
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            action()


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

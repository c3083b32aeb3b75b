"""The moment after a worker was told to end, in which it shows whether the whole job was."""

from __future__ import annotations

from collections.abc import Callable

from agent.lifecycle.waits import SETTLE_SECONDS
from agent.machine.api import Machine


class Settling:
    """Nothing is judged until it is over: our own SIGTERM may come as well.

    The job then ends 143, as it was told to, and not 75, which would be a reason to start it again.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._until = 0.0

    def begin(self) -> None:
        """A worker was told to end."""
        self._until = self._machine.now() + SETTLE_SECONDS

    def end(self) -> None:
        """Our own signal has come."""
        self._until = 0.0

    def when_over(self, action: Callable[[], None]) -> None:
        """Call it then, by the loop in any case."""
        self._machine.later(max(0.0, self._until - self._machine.now()), action)

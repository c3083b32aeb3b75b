"""How parts of a pod's life wait: for what happens once, for a signal that may follow, how long several wait alike.

How long only one of them waits is beside its code.
"""

from __future__ import annotations

from collections.abc import Callable

from agent.machine.api import Clock

REPORT_SECONDS = 30.0
"""Whoever waits for pods says after each of these for whom, in the log or to the command that asks."""
EARLY_SECONDS = 20.0
"""How long an end that comes before all pods have met waits for those that are still starting, to tell them."""
SETTLE_SECONDS = 2.0
"""A job that is deleted ends all its pods, but not at the same moment: within this time."""
LAST_WORDS_SECONDS = 2.0
"""How long a pod's end waits for who reads its last words: the coordinator, and readers of stdout and stderr."""
BEAT_SECONDS = 5.0
"""The most between two signs of life: to other pods, and for probes."""
PROBE_SECONDS = 5.0
"""How long a directory on a server may take to answer while it is not known whether it can be used at all."""


class Once:
    """Something that happens once. Callbacks run when it happens, or at once if it already has."""

    def __init__(self) -> None:
        self.happened = False
        self._waiting: list[Callable[[], object]] = []

    def when(self, action: Callable[[], object]) -> None:
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


class Settling:
    """Nothing is judged until it is over: our own SIGTERM may come as well.

    The job then ends 143, as it was told to, and not 75, which would be a reason to start it again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = 0.0

    def begin(self) -> None:
        """A worker was told to end."""
        self._until = self._clock.now() + SETTLE_SECONDS

    def end(self) -> None:
        """Our own signal has come."""
        self._until = 0.0

    def when_over(self, action: Callable[[], None]) -> None:
        """Call it then, by the loop in any case."""
        self._clock.later(max(0.0, self._until - self._clock.now()), action)

"""A loop on which nobody waits: when nothing is left to do at this moment, its clock jumps to the next timer."""

from __future__ import annotations

from collections import deque

from agent.machine.loop import Action, Loop

ENOUGH_SECONDS = 120.0
"""How far its time goes on by itself: a lost pod is noticed and a cancelled run has ended by then."""


class JumpingLoop(Loop):
    """Time stands still when ENOUGH_SECONDS have passed since `go_on`: a run that never ends costs nothing.

    What comes from outside has its turn by `when_still`, so that it never depends on how fast a test is.
    """

    def __init__(self) -> None:
        super().__init__()
        self._now = self._until = 1000.0  # no machine's clock starts at 0
        self._when_still: deque[Action] = deque()

    def now(self) -> float:
        return self._now

    def go_on(self, seconds: float = 0.0) -> None:
        """Let time pass: for what takes so many seconds, and ENOUGH_SECONDS beyond."""
        self._until = max(self._until, self._now + seconds + ENOUGH_SECONDS)

    def when_still(self, action: Action) -> None:
        """Call it when time stands still, and has done so again after each call before."""
        self._when_still.append(action)

    def _patience(self) -> float | None:
        if self._posted or self._selector.select(0.0):
            return 0.0
        if self._timers and self._timers[0][0] <= self._until:
            self._now = max(self._now, self._timers[0][0])
            return 0.0
        if self._when_still:
            self._posted.append(self._when_still.popleft())
            return 0.0
        return None

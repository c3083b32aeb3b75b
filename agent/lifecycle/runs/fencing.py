"""Keeps one part of a run with lives from going on when pod 0 may begin the run anew without this pod.

A process of its own, the guard, ends what is left of it when the fence passes or this agent is gone: the agent may
stand still itself. An agent that runs does the same in the usual way.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from agent.decide.os_refusals import refused
from agent.lifecycle.pod.fence import Fenced
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.waits import Once
from agent.machine.api import GuardProcess, GuardSaid, RunMarks


class PartFence:
    """The fence as one part has it; none at all for a run without lives."""

    def __init__(self, pod: Pod, marks: RunMarks, lives: int | None, passed: Callable[[], None]) -> None:
        """`passed` is told, once, that the part has to end at once."""
        self._pod = pod
        self._machine = pod.machine
        self._marks = marks
        self._lives = lives
        self._tell = passed
        self._since = 0.0
        """When it began. No process of the run begins before pod 0 has received what this pod said after that."""
        self._ready = Once()
        self._guard: GuardProcess | None = None
        """None: none has been started, or nothing is left to guard."""
        self._passed = False
        self._fenced = Fenced(self._moved, self._judge)

    def start(self) -> None:
        """Raises SystemFault: a part that nobody guards cannot begin."""
        if not self._lives:
            self._ready.happen()
            return
        self._since = self._machine.now()
        try:
            self._guard = self._machine.start_guard(self._marks, self._deadline, self._said)
        except OSError as error:
            raise refused(f"the guard of {self._marks.run} cannot be started", error) from error
        self._pod.fence.add(self._fenced)
        self._wait()

    def when_ready(self, action: Callable[[], None]) -> None:
        """Call it when the part is guarded, at once if it needs no guard."""
        self._ready.when(action)

    def has_passed(self) -> bool:
        """Has the part ended behind the fence, whatever else is said of its end?"""
        self._judge()
        return self._passed

    def close(self) -> None:
        """Nothing of the part is left."""
        if self._guard is not None:
            self._guard.close()
            self._guard = None
            self._pod.fence.remove(self._fenced)

    @property
    def _deadline(self) -> float:
        return self._pod.fence.passes(self._since)

    def _wait(self) -> None:
        if self._guard is None or self._passed or self._deadline == math.inf:
            return
        left = self._deadline - self._machine.now()
        if left > 0:
            self._machine.later(left, self._wait)
        else:
            self._judge()

    def _moved(self) -> None:
        if self._guard is not None and not self._passed:
            self._guard.until(self._deadline)

    def _judge(self) -> None:
        if self._guard is not None and self._machine.now() >= self._deadline:
            self._pass("pod 0 has acknowledged no beat of this pod for so long that it may begin the run anew")

    def _said(self, said: GuardSaid) -> None:
        if said == "ready":
            self._ready.happen()
        elif said == "passed":
            self._pass("its guard was not told in time that pod 0 hears this pod")
        else:
            self._pass("its guard is gone")

    def _pass(self, why: str) -> None:
        if self._passed:
            return
        self._passed = True
        self._pod.log.error(f"this pod ends its part of {self._marks.run} at once: {why}")
        self._pod.state.event("fenced", detail=self._marks.run)
        self._tell()

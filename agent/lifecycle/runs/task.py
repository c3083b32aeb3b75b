"""One process that the agent starts for a run: its end, and the clean-up after it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

from agent.decide.grace import USUAL
from agent.launch import Launch
from agent.lifecycle.once import Timers
from agent.lifecycle.pod.pod import Pod
from agent.machine.api import Child, RunMarks

MOST_PIDS = 10
"""Processes that a warning names."""


class Task:
    """Starts at most one process. `ended(status)` comes once, when it and all it left behind are gone."""

    def __init__(
        self,
        pod: Pod,
        marks: RunMarks,
        ended: Callable[[int], None],
        output: Callable[[int, bytes], None],
        emitted: bool,
    ) -> None:
        self._pod = pod
        self._machine = pod.machine
        self._marks = marks
        self._ended = ended
        self._output = output
        self._emitted = emitted
        self._child: Child | None = None
        self._timers = Timers(pod.machine)
        self._stopping = False
        """It got SIGTERM. It gets one: at a second one mpirun gives up its own clean-up."""
        self._had_process = False
        self._gone = False
        """The process has ended, or cannot be ended; the clean-up goes on."""

    def start(self, launch: Launch | None) -> None:
        """Start it; without a launch there is no process, and the task lasts until `stop`. Raises OSError."""
        self._had_process = launch is not None
        if launch is not None:
            self._child = self._machine.start(
                launch, self._exited, self._output, emitted=self._emitted, marks=self._marks
            )

    def stop(self, seconds: float, *, group: bool = False) -> None:
        """SIGTERM, and SIGKILL after `seconds`; a further call can only shorten that.

        With `group` every process of its group has this time. Else what outlives the first one is ended with it.
        """
        if self._child is None:
            self._exited(0)
            return
        self._timers.later(seconds, self.kill)
        if self._stopping:
            return
        self._stopping = True
        if group:
            self._child.await_group()
        self._child.signal(signal.SIGTERM)

    def signal(self, number: int) -> None:
        """Send a signal that ends nothing by itself."""
        if self._child is not None:
            self._child.signal(number)

    def kill(self) -> None:
        """No more patience. What even SIGKILL does not end (a device that hangs) is left and said."""

        def leave() -> None:
            if self._child is not None:
                self._pod.log.error(f"process {self._child.pid} of the run cannot be killed")
                self._exited(-signal.SIGKILL)

        if self._child is not None:
            self._child.signal(signal.SIGKILL)
            self._machine.later(self._pod.shares.kill, leave)

    def _exited(self, status: int) -> None:
        if self._gone:
            return
        self._gone = True
        self._timers.cancel()
        self._child = None
        self._machine.sweep(self._marks, USUAL.kill, lambda count, left: self._swept(status, count, left))

    def _swept(self, status: int, count: int, left: Sequence[int]) -> None:
        if count:
            # Daemons of an MPI run are still ending by themselves when the run is over: no news.
            say = self._pod.log.info if self._had_process else self._pod.log.debug
            say(f"ended {count} process{'es' if count > 1 else ''} that the run had left behind")
        if left:
            pids = ", ".join(map(str, left[:MOST_PIDS])) + (", …" if len(left) > MOST_PIDS else "")
            self._pod.log.warning(f"processes of the run are left: SIGKILL has not ended {pids} (PIDs of this pod)")
        self._ended(status)

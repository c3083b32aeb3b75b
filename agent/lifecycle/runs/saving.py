"""A part that is told to end from outside: its processes have the grace time to save their state."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from dataclasses import dataclass

from agent.decide.ranks import MPI_RANK, TORCHRUN_RANK
from agent.lifecycle.pod.pod import Pod
from agent.machine.api import RunMarks
from agent.workloads.base import RunContext


@dataclass
class Saving:
    """A warning, SIGTERM, SIGKILL: ranks first, their launcher when they are over, as torchrun would kill them after
    30 s. mpirun ends the ranks of all pods: it is told when they are over on all pods.

    `ranks_over` is told when those of an MPI run are over here, or had their time; `stop` ends the process within
    so many seconds; its second argument: the time is that of its whole group.
    """

    _pod: Pod
    _context: RunContext
    _marks: RunMarks
    _led: bool
    _over: Callable[[], bool]
    _ranks_over: Callable[[], None]
    _stop: Callable[[float, bool], None]
    _save_by: float = math.inf
    """When the time is over that it has."""

    def __post_init__(self) -> None:
        self._machine = self._pod.machine
        self._shares = self._pod.shares

    def seconds_left(self) -> float:
        """How long the process may still take, when it was told to end. What follows ranks has a little in any case."""
        return max(self._save_by - self._machine.now(), self._shares.kill)

    def begin(self) -> None:
        run_id, seconds = self._context.run_id, self._shares.save
        self._save_by = self._machine.now() + seconds
        self._pod.log.info(f"{run_id} is told to end and has {seconds:.0f} s to save its state")
        self._pod.state.event("told-to-end", detail=run_id)
        if self._led:
            told = self._context.told_file
            self._pod.state.attempt(told, lambda: self._machine.write(told, "", 0o600))
        if warning := self._pod.settings.warn_signal:
            variable = MPI_RANK if self._led else ""  # mpirun handles signals: it would pass them on
            self._tell(signal.Signals[f"SIG{warning}"], variable, self._shares.warn, self._tell_ranks)
        else:
            self._tell_ranks()

    def _tell_ranks(self) -> None:
        self._tell(signal.SIGTERM, MPI_RANK if self._led else TORCHRUN_RANK, self.seconds_left(), self._end_launcher)

    def _end_launcher(self) -> None:
        if not self._led:
            self._stop(self.seconds_left(), True)
            return
        self._ranks_over()
        # Nobody may ever say that ranks are over everywhere: pod 0 may be gone.
        self._machine.later(self.seconds_left() + self._shares.kill, lambda: self._stop(self._shares.kill, False))

    def _tell(self, number: int, variable: str, seconds: float, then: Callable[[], None]) -> None:
        self._machine.tell(self._marks, number, variable, seconds, lambda: None if self._over() else then())

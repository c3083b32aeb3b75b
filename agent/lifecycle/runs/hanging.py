"""A process that is at its end and does not come to it: Open MPI does that when it loses a message, and when something
that a rank has left behind holds the rank's output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.lifecycle.runs.part_files import PartFiles
from agent.lifecycle.runs.part_output import PartOutput
from agent.machine.api import Clock

LOOK_SECONDS = 5.0
"""Between two looks at what the process says and at the ranks' files."""
ENDING_SECONDS = 10.0
"""How long a process that has reported its end may take to exit."""
AFTER_RANKS_SECONDS = 5.0
"""How long mpirun may be silent after all ranks have ended: output may be on its way."""


@dataclass
class Hanging:
    """Watches this pod's part of an MPI run.

    `goes_on`: it has begun, and was not told to end. `is_paused`: what the process prints has to wait, so that it
    cannot end. `ranks_over` is told when all ranks of this pod have ended; `end` gets why the process hangs.
    """

    _clock: Clock
    _files: PartFiles
    _output: PartOutput
    _is_paused: Callable[[], bool]
    _goes_on: Callable[[], bool]
    _ranks_over: Callable[[], None]
    _end: Callable[[str], None]

    def start(self, *, is_lead: bool) -> None:
        """The part has begun; on the lead there is a process."""
        self._later(LOOK_SECONDS, self._look_at_ranks)
        if is_lead:
            self._later(LOOK_SECONDS, self._look_for_the_end)

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        """Call it then, if the part still goes on."""
        self._clock.later(seconds, lambda: action() if self._goes_on() else None)

    # What the process says

    def _look_for_the_end(self) -> None:
        if self._files.is_ending(self._output.text()):
            self._later(ENDING_SECONDS, self._end_if_it_hangs)
        else:
            self._later(LOOK_SECONDS, self._look_for_the_end)

    def _end_if_it_hangs(self) -> None:
        silent = self._clock.now() - self._output.printed
        # Ranks of other pods may run, and print.
        if self._is_paused() or silent < ENDING_SECONDS or not self._files.is_ending(self._output.text()):
            self._look_for_the_end()
        else:
            self._end(f"the run reported its end {ENDING_SECONDS:.0f} s ago and hangs: it is ended")

    # What the ranks' records say

    def _look_at_ranks(self) -> None:
        if self._files.ranks_over():
            self._ranks_over()
        else:
            self._later(LOOK_SECONDS, self._look_at_ranks)

    def all_ranks_over(self) -> None:
        """The ranks of all pods have ended."""
        latest = self._clock.now() + 60.0  # however much it prints
        self._later(AFTER_RANKS_SECONDS, lambda: self._end_when_silent(latest))

    def _end_when_silent(self, latest: float) -> None:
        left = min(self._output.printed + AFTER_RANKS_SECONDS, latest) - self._clock.now()
        if self._is_paused():
            left = AFTER_RANKS_SECONDS
        if left > 0:
            self._later(left, lambda: self._end_when_silent(latest))
        else:
            self._end("all ranks have ended and mpirun has not: it is ended. A process they left may hold their output")

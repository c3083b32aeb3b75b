"""A process that is at its end and does not come to it: Open MPI does that when it loses a message, and when something
that a rank has left behind holds the rank's output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.lifecycle.runs.part_files import PartFiles
from agent.lifecycle.runs.part_output import PartOutput
from agent.machine.api import Machine

LOOK_SECONDS = 5.0
"""Between two looks at what the process says and at the ranks' files."""
ENDING_SECONDS = 10.0
"""How long a process that has reported its end may take to exit."""
AFTER_RANKS_SECONDS, MOST_AFTER_RANKS_SECONDS = 5.0, 60.0
"""How long mpirun may be silent after all ranks have ended, and how long it may print: output may be on its way."""


@dataclass
class Hanging:
    """Watches this pod's part of an MPI run. `goes_on`: it has begun, and was not told to end.

    `ranks_over` is told when all ranks of this pod have ended; `end` gets why the process hangs.
    """

    _machine: Machine
    _files: PartFiles
    _output: PartOutput
    _goes_on: Callable[[], bool]
    _ranks_over: Callable[[], None]
    _end: Callable[[str], None]

    def start(self, *, is_lead: bool) -> None:
        """The part has begun; on the lead there is a process."""
        self._machine.later(LOOK_SECONDS, self._look_at_ranks)
        if is_lead:
            self._machine.later(LOOK_SECONDS, self._look_for_the_end)

    # What the process says

    def _look_for_the_end(self) -> None:
        if not self._goes_on():
            return
        if self._files.is_ending(self._output.text()):
            self._machine.later(ENDING_SECONDS, self._end_if_it_hangs)
        else:
            self._machine.later(LOOK_SECONDS, self._look_for_the_end)

    def _end_if_it_hangs(self) -> None:
        if not self._goes_on():
            return
        silent = self._machine.now() - self._output.printed
        # Ranks of other pods may run, and print.
        if silent < ENDING_SECONDS or not self._files.is_ending(self._output.text()):
            self._look_for_the_end()
        else:
            self._end(f"the run reported its end {ENDING_SECONDS:.0f} s ago and hangs: it is ended")

    # What the ranks' records say

    def _look_at_ranks(self) -> None:
        if not self._goes_on():
            return
        if self._files.ranks_over():
            self._ranks_over()
        else:
            self._machine.later(LOOK_SECONDS, self._look_at_ranks)

    def all_ranks_over(self) -> None:
        """The ranks of all pods have ended."""
        latest = self._machine.now() + MOST_AFTER_RANKS_SECONDS
        self._machine.later(AFTER_RANKS_SECONDS, lambda: self._end_when_silent(latest))

    def _end_when_silent(self, latest: float) -> None:
        if not self._goes_on():
            return
        left = min(self._output.printed + AFTER_RANKS_SECONDS, latest) - self._machine.now()
        if left > 0:
            self._machine.later(left, lambda: self._end_when_silent(latest))
        else:
            self._end("all ranks have ended and mpirun has not: it is ended. A process they left may hold their output")

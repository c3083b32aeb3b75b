"""How often the ranks of this pod enter operations: what is usual for them tells a hang from a long step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from agent.clinic.sources.torch_server import entered_operations
from agent.clinic.why.pace import Pace, Steps
from agent.machine.api import Machine

LOOK_SECONDS = 10.0
"""Between two looks at the numbers of all ranks, which takes none of them its GIL."""
ANSWER_SECONDS = 3.0


class RankSteps:
    """Looks at what ranks leave in a directory, for as long as `goes_on` says so."""

    def __init__(self, machine: Machine, directory: str, goes_on: Callable[[], bool]) -> None:
        self._machine = machine
        self._directory = directory
        self._goes_on = goes_on
        self._steps: dict[int, Steps] = {}
        self._looking = False

    def start(self) -> None:
        self._machine.later(LOOK_SECONDS, self._look_again)

    def _look_again(self) -> None:
        if self._goes_on():
            self.look()
            self._machine.later(LOOK_SECONDS, self._look_again)

    def look(self) -> None:
        """Look once, unless the last look has not ended yet."""
        if not self._looking:
            self._looking = True
            work = partial(entered_operations, self._directory, ANSWER_SECONDS)
            self._machine.aside(work, self._seen, lambda why: self._seen({}))

    def _seen(self, numbers: Mapping[int, int]) -> None:
        self._looking = False
        now = self._machine.now()
        for pid, count in numbers.items():
            steps = self._steps.get(pid)
            self._steps[pid] = steps.seen(count, now) if steps is not None else Steps(count, now)

    def paces(self) -> Mapping[int, Pace]:
        """Process → how often it enters operations."""
        now = self._machine.now()
        return {pid: steps.pace(now) for pid, steps in self._steps.items()}

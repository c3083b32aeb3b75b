"""What changed in the devices of a run's pods: each pod says it after its part is over."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agent.decide.course import Course
from agent.decide.finding import Finding
from agent.decide.part_end import PartEnd
from agent.lifecycle.pod.pod import Pod


class RunHealth:
    """When all parts are over, `judge` is called again for each pod that has told, and when the time for it is over."""

    def __init__(self, pod: Pod, judge: Callable[[], None]) -> None:
        self._pod = pod
        self._judge = judge
        self._told: dict[int, tuple[Finding, ...]] = {}
        self._timed = False
        self._over = False

    @property
    def findings(self) -> list[Finding]:
        return [one for _, found in sorted(self._told.items()) for one in found]

    def heard(self, index: int, found: tuple[Finding, ...]) -> None:
        self._told[index] = found
        if self._timed:
            self._judge()

    def waits(self, course: Course, ends: Mapping[int, PartEnd]) -> bool:
        """Must pods that are still reading be waited for?"""
        missing = {index for index, end in ends.items() if end.reading} - self._told.keys() - course.lost.keys()
        if self._over or not missing:
            return False
        if not self._timed:
            self._timed = True
            self._pod.machine.later(self._pod.shares.answer, self._give_up)
        return True

    def stop(self) -> None:
        """Somebody waits for the run to end."""
        self._over = True

    def _give_up(self) -> None:
        if not self._over:
            self._over = True
            self._judge()

"""What is read when all parts of a run are over: what torch's watchdog wrote before it ended ranks, which may explain
the end, and what changed in the devices of pods, which does not change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agent.clinic.interface import Collected
from agent.decide.diagnosis import Diagnosis
from agent.decide.ending import with_diagnosis
from agent.decide.facts import Finding
from agent.decide.part_end import PartEnd
from agent.decide.subset import pods_text
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.runs.course import Course
from agent.lifecycle.runs.why import Why, decided
from agent.workloads.base import Judgement


class Afterwards:
    """`go_on` is called again when something has come that was waited for, and when its time is over."""

    def __init__(self, pod: Pod, why: Why, go_on: Callable[[], None]) -> None:
        self._pod = pod
        self._why = why
        self._go_on = go_on
        self._told: dict[int, tuple[Finding, ...]] = {}
        self._dumps_asked = self._dumps_over = False
        self._health_timed = self._health_over = False
        self._found: Diagnosis | None = None
        """What dumps say."""

    def waits_for_dumps(self, course: Course, ends: Mapping[int, PartEnd]) -> bool:
        """Is the end not certain yet? Pods that have dumps are asked once."""
        dumps = {index for index, end in ends.items() if end.dumps and index not in course.lost}
        if dumps and not (self._dumps_asked or self._dumps_over):
            self._dumps_asked = True
            self._why.read_dumps(dumps, self._collected)
        return bool(dumps) and not self._dumps_over

    def waits_for_devices(self, course: Course, ends: Mapping[int, PartEnd]) -> str:
        """For what, in words; empty for nothing. Pods that still read their devices have a while."""
        missing = {index for index, end in ends.items() if end.reading} - self._told.keys() - course.lost.keys()
        if self._health_over or not missing:
            return ""
        if not self._health_timed:
            self._health_timed = True
            self._pod.machine.later(self._pod.shares.answer, self._give_up)
        return f"what devices of {pods_text(missing)} counted is still read, for {self._pod.shares.answer:g} s at most"

    def stop(self, *, told: bool) -> None:
        """Something else ends the run: nobody waits for dumps; nor for devices where it was `told` to end."""
        self._dumps_over = True
        self._health_over = self._health_over or told

    # Dumps

    def _collected(self, seen: Collected) -> None:
        if self._dumps_over:
            return
        self._dumps_over = True
        self._found = decided(self._pod, seen) if seen.groups else None
        if self._found is not None:
            self._why.found = self._found
        self._go_on()

    def explained(self, judgement: Judgement) -> Judgement:
        """With what dumps say."""
        if self._found is None or not judgement.end.code:
            return judgement
        return judgement._replace(end=with_diagnosis(judgement.end, self._found))

    # Devices

    @property
    def findings(self) -> list[Finding]:
        return [one for _, found in sorted(self._told.items()) for one in found]

    def heard(self, index: int, found: tuple[Finding, ...]) -> None:
        """A pod says, after its part is over, what changed in its devices."""
        self._told[index] = found
        if self._health_timed:
            self._go_on()

    def gone(self, index: int) -> None:
        """This pod says nothing any more."""
        self._told.setdefault(index, ())

    def _give_up(self) -> None:
        self._health_over = True
        self._go_on()

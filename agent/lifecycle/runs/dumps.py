"""What torch's watchdog wrote before it ended ranks: it is read before the run is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agent.decide.course import Course
from agent.decide.part_end import PartEnd
from agent.decide.words import lines
from agent.health.why.records import Collected
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.runs.why import Why, decided
from agent.workloads.base import Judgement


class Dumps:
    """The dumps of one run. Pods that have some are asked once, when all parts are over; then, or when pods have not
    answered in time, `read` is called."""

    def __init__(self, pod: Pod, why: Why, read: Callable[[], None]) -> None:
        self._pod = pod
        self._why = why
        self._read = read
        self._asked = False
        self._over = False
        self._sentence = ""

    def waits(self, course: Course, ends: Mapping[int, PartEnd]) -> bool:
        """Must they be waited for?"""
        pods = {index for index, end in ends.items() if end.dumps and index not in course.lost}
        if self._over or not pods:
            return False
        if not self._asked:
            self._asked = True
            self._why.read_dumps(pods, self._collected)
        return not self._over

    def stop(self) -> None:
        """Something else ends the run: nobody waits for them."""
        self._over = True

    def _collected(self, seen: Collected) -> None:
        if self._over:
            return
        self._over = True
        has_some = any(process.groups for pod in seen.pods for process in pod.processes)
        found = decided(self._pod, seen) if has_some else None
        if found is not None:
            self._why.found, self._sentence = found, found.sentence
        self._read()

    def explained(self, judgement: Judgement) -> Judgement:
        """With what they say."""
        end = judgement.end
        return judgement._replace(end=end._replace(why=lines(self._sentence, end.why))) if end.code else judgement

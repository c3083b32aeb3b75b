"""How a run ends, as far as that is known, and whether it starts again."""

from __future__ import annotations

import traceback
from collections.abc import Collection, Mapping, Sequence

from agent.decide.ending import JobEnd, from_bug, is_told, with_failure
from agent.decide.part_end import PartEnd
from agent.decide.result import Training
from agent.decide.series import PodSeries
from agent.decide.words import lines
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.runs.afterwards import Afterwards
from agent.lifecycle.runs.course import NEXT, Course, Phase
from agent.lifecycle.runs.judging import explained, judge, outcome, warned
from agent.lifecycle.runs.lives import Lives
from agent.lifecycle.runs.merged_series import series_notes
from agent.workloads.base import Judgement, RunContext, Workload


class Verdict:
    """`before`: that of the life before this one."""

    def __init__(self, pod: Pod, context: RunContext, workload: Workload, before: Verdict | None) -> None:
        self._pod = pod
        self._workload = workload
        self.lives: Lives = Lives(
            pod,
            context,
            before.lives.ended if before else (),
            before.series_of_all_lives if before else {},
            before.trainings_of_all_lives if before else (),
        )
        self.ends: dict[int, PartEnd] = {}
        """How parts ended, by pod."""
        self.series: dict[int, PodSeries] = {}
        """What their programs wrote of themselves, by pod, as far as it is known."""
        self.judgement: Judgement | None = None
        """None while it is not certain how it ends."""
        self.again = False
        """It is over, and the run is to start again."""
        self.waits = ""
        """For what, when that is certain; empty for nothing."""
        self.said = False
        """The end was told before the run was over: another cannot take its place."""
        self.shown = ""
        """What people have seen of the judgement's text."""

    @property
    def end(self) -> JobEnd:
        assert self.judgement is not None
        return self.judgement.end

    def part_over(self, index: int, end: PartEnd) -> None:
        """This pod's part ended so."""
        if end.series is not None:
            self.series[index] = end.series
        self.ends[index] = end._replace(series=None)

    def judged(self, context: RunContext, course: Course, afterwards: Afterwards, notes: Sequence[str]) -> Judgement:
        """What becomes of the run by what is known now. `notes` on the roll call are warnings."""
        try:
            tokens = [self._pod.heard[index].nonce for index in context.indices]
            judgement = judge(self._workload, context, course, self.ends, tokens)
        except Exception:
            # Whoever waits for this run must hear of its end, whatever is broken.
            judgement = Judgement(from_bug(traceback.format_exc(), self._pod.where(0)))
            self._pod.log.error(str(judgement.end), judgement.end)
        judgement = warned(afterwards.explained(judgement), [*series_notes(self.series_of_all_lives), *notes])
        if self.lives.vain:
            why = lines(f"not started again: {self.lives.vain}", judgement.end.why)
            judgement = judgement._replace(end=judgement.end._replace(why=why))
        return explained(judgement, context, self._workload, self.ends, self._pod.log.masked)

    def may_start_again(self, course: Course) -> bool:
        """May another life follow, whatever the reason for the end of this one?"""
        told = course.cause is not None and is_told(course.cause)
        if told or not self.lives.may_be or self.judgement is not None or Phase.OVER not in NEXT[course.phase]:
            return False
        # What SIGKILL has not ended may still write, and holds its devices.
        return not any(end.left for end in self.ends.values())

    def starts_again(
        self,
        judgement: Judgement,
        context: RunContext,
        course: Course,
        began: float,
        lost: Collection[int],
        unhealthy: Mapping[int, str],
        *,
        stalled: bool,
    ) -> bool:
        """Does another life follow this one, which `began` then and is judged so? See `Lives.go_on`."""
        code = self._workload.rank_code(context, outcome(course, self.ends, ()))
        step = self.lives.step(self.series, judgement.measurements.trainings)
        if self.lives.go_on(began, judgement.end, code, lost, unhealthy, step, stalled=stalled):
            self.again, self.judgement = True, judgement
        return self.again

    def goes_no_further(self, end: JobEnd) -> None:
        """No other life follows after all, for this reason."""
        self.again = False
        self.end_as(with_failure(end, self.end))

    @property
    def series_of_all_lives(self) -> Mapping[int, PodSeries]:
        return self.lives.with_series(self.series)

    @property
    def trainings_of_all_lives(self) -> Sequence[Training]:
        return self.lives.with_trainings(self.judgement.measurements.trainings if self.judgement else ())

    def end_as(self, end: JobEnd) -> None:
        """Another end than the judgement's, as when the whole job was told to end meanwhile."""
        assert self.judgement is not None
        self.judgement = self.judgement._replace(end=end)

    def forget_output(self) -> None:
        """It is in the spools and in result.json. Kept here it would be a few MiB for each of 50 runs."""
        self.ends = {index: end._replace(output="", record="") for index, end in self.ends.items()}
        self.series = self.lives.series = {}

"""The lives of a run: what is kept of those before this one, and whether another one follows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from agent.decide.ending import JobEnd
from agent.decide.lives import UNHEALTHY, LifeEnd, no_progress, reasons
from agent.decide.result import Training
from agent.decide.series import PodSeries, continued, newest_step
from agent.decide.trainings import continued_trainings, newest_iteration
from agent.lifecycle.pod.pod import Pod
from agent.workloads.base import RunContext


class Lives:
    """`earlier` are over; `series` is what programs wrote of themselves in them, by pod; `trainings` what Megatron
    printed."""

    def __init__(
        self,
        pod: Pod,
        context: RunContext,
        earlier: tuple[LifeEnd, ...],
        series: Mapping[int, PodSeries],
        trainings: Sequence[Training],
    ) -> None:
        self._pod = pod
        self.may_be = bool(context.spec.lives)
        """This life may be followed by another one, or would be if some were left."""
        self._left = context.lives_left
        self._wanted = set(pod.settings.restart_on.split(","))
        self.earlier = earlier
        self.series = series
        self._trainings = trainings
        self.ended: tuple[LifeEnd, ...] = ()
        """These and this one, once that is over, unless nothing could follow it."""
        self.unhealthy: Mapping[int, str] = {}
        """Pods that are to be replaced before the next one, and why."""
        self.vain = ""
        """Why another one would not help."""
        self.is_last = False
        """Whatever the reason for its end, no other follows."""
        self._noticed: float | None = None

    def notice(self) -> None:
        """It is known that this life ends."""
        self._noticed = self._noticed or self._pod.machine.wall()

    def joined(self) -> None:
        """All pods are there for it."""
        self._note(joined=self._pod.machine.wall())

    def begun(self, when: float) -> None:
        self._note(next=when)

    def _note(self, **when: Any) -> None:
        """How long after the last life that was."""
        if self.earlier:
            self.earlier = (*self.earlier[:-1], self.earlier[-1]._replace(**when))

    def with_series(self, series: Mapping[int, PodSeries]) -> Mapping[int, PodSeries]:
        """The `series` of this life as the continuation of those of earlier ones."""
        return continued(self.series, series)

    def with_trainings(self, trainings: Sequence[Training]) -> tuple[Training, ...]:
        """The `trainings` of this life as the continuation of those of earlier ones."""
        return continued_trainings(self._trainings, trainings)

    def step(self, series: Mapping[int, PodSeries], trainings: Sequence[Training]) -> int | None:
        """How far this life came; None: nobody said."""
        if newest_iteration(trainings) is None:
            return newest_step(series)
        return newest_iteration(self.with_trainings(trainings))  # it may be in a later stage than an earlier life

    def may_go_on(self, end: JobEnd) -> bool:
        """Would another one follow such an end if a pod were unhealthy?"""
        may = self._left > 0 and self._pod.settings.lives > 0 and not self.is_last
        # Any pod will do, because it is not known yet which one is unhealthy.
        return may and UNHEALTHY in self._wanted & reasons(end, unhealthy=[self._pod.settings.index])

    def go_on(
        self,
        since: float,
        end: JobEnd,
        rank_code: int | None,
        lost: Collection[int],
        unhealthy: Mapping[int, str],
        step: int | None,
        *,
        stalled: bool,
    ) -> bool:
        """Does another life follow this one, which began at `since`, came to that `step` and has ended so? See
        `reasons`."""
        now, lost = self._pod.machine.wall(), {*lost, *unhealthy}
        if self.is_last or (lost and not self._pod.settings.lives):  # nobody comes in their place
            return False
        if not self._wanted & reasons(end, rank_code, lost=lost, unhealthy=unhealthy, stalled=stalled):
            return False
        this = LifeEnd(since, self._noticed or now, now, step, end, tuple(sorted(lost)))
        self.ended, self.unhealthy = (*self.earlier, this), unhealthy
        self.vain = no_progress(self.ended)
        return not self.vain and self._left > 0

"""The lost pods of a run, and its wait for their replacements before a life begins."""

from __future__ import annotations

from collections.abc import Callable, Set

from agent.decide.subset import pods_text
from agent.lifecycle.channel.roster import Roster
from agent.lifecycle.pod.pod import Pod
from agent.machine.api import Timer


class AwaitedPods:
    """`give_up` is told when replacements have not come in time. `lives`: the run may start again, so it waits."""

    def __init__(self, pod: Pod, roster: Roster, pods: Set[int], *, lives: bool, give_up: Callable[[], None]) -> None:
        self._pod = pod
        self._roster = roster
        self._pods = pods
        self.may_come = lives and pod.settings.lives > 0
        """Pods that are lost may come back, or others in their places."""
        self._give_up = give_up
        self._timer: Timer | None = None
        """Set while the run waits."""

    @property
    def are_waited_for(self) -> bool:
        """The run can begin when all its pods are there."""
        return self._timer is not None

    def lost(self) -> dict[int, str]:
        """Which of the pods are lost now, and why."""
        return {index: why for index, why in self._roster.lost.reasons().items() if index in self._pods}

    def wait(self, run_id: str) -> bool:
        """Does the run have to wait, from now on or still?"""
        lost = self.lost() if self.may_come else {}
        if lost and self._timer is None:
            self._pod.log.info(f"{run_id} waits for the replacement of {pods_text(lost)}")
            self._timer = self._pod.machine.later(self._pod.settings.replacement, self._give_up)
        if not lost:
            self.stop()
        return bool(lost)

    def stop(self) -> None:
        """All are there, or the run has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

"""Which pods of a run are there when its first process fails.

A lost pod makes the processes that need it fail within a second, long before its lease is over. So there is no verdict
until every pod has answered or is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass

from agent.decide.messages import AskAlive
from agent.decide.subset import pods_text
from agent.decide.words import at_most
from agent.lifecycle.channel.link import SILENT_BEATS, beat_seconds
from agent.lifecycle.channel.roster import Roster
from agent.lifecycle.pod.pod import Pod
from agent.workloads.base import RunContext

LATE_SECONDS = 2.0
"""An answer that comes later is told of."""


@dataclass
class RollCall:
    """Asks every pod of a run once; `lost` gets those that are gone or did not answer in time, and why.

    `silent()`: pods that were asked and have not answered.
    """

    _pod: Pod
    _context: RunContext
    _roster: Roster
    _silent: Callable[[], Set[int]]
    _lost: Callable[[int, str], None]

    def __post_init__(self) -> None:
        self._since = 0.0
        self._late: dict[int, float] = {}
        """Seconds after which pods have answered that did not at once."""

    def begin(self, failed: int) -> None:
        """Ask all, also the pod on which a process has `failed`: it may be going, too."""
        settings, later = self._pod.settings, self._pod.machine.later
        self._since = self._pod.machine.now()
        self._roster.say(AskAlive(self._context.run_id), self._context.indices)
        # For agents that are heard and never answer.
        later(settings.lease + SILENT_BEATS * beat_seconds(settings.lease), self.end)
        later(LATE_SECONDS, lambda: self._report(failed))
        # A pod that left when its part was done cannot be asked, and would be waited for.
        later(0, self._tell_losses)

    def answered(self, index: int) -> None:
        seconds = self._pod.machine.now() - self._since
        if seconds > LATE_SECONDS:
            self._late[index] = seconds

    def notes(self) -> list[str]:
        """A line on the pods that were silent for a while: what failed may have missed them."""
        late = [f"{self._pod.where(index)}, for {seconds:.0f} s" for index, seconds in sorted(self._late.items())]
        return [f"pods that did not answer at first when a process failed: {'; '.join(at_most(late))}"] if late else []

    def _tell_losses(self) -> None:
        for index, why in self._roster.lost.reasons().items():
            self._lost(index, why)

    def end(self) -> None:
        """Those that are silent are waited for no longer."""
        for index in sorted(self._silent()):
            self._lost(index, "it has not answered since a process of the run failed")

    def _report(self, failed: int) -> None:
        if silent := self._silent():
            failure = f"{self._context.run_id} failed on {self._pod.where(failed)}"
            until = f"no answer since from {pods_text(silent)}; waiting for them, for a lease at most"
            self._pod.log.warning(f"{failure}; {until}")

"""A sleeping cluster costs as much as one that works: say so every hour, and end it when it was told to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from agent.decide.ending import JobEnd
from agent.errors import Exit
from agent.lifecycle.pod.pod import Pod

HOUR = 3600.0


class Idling:
    """Watches a sleeping cluster, on the coordinator. `release` gets why, after A4_SLEEP_MAX_HOURS without a run.

    `is_idle` says whether nothing runs at all, for `a4-agent exec` is work too, though it does not end the sleep.
    """

    def __init__(self, pod: Pod, is_idle: Callable[[], bool], release: Callable[[JobEnd], None]) -> None:
        self._pod = pod
        self._is_idle = is_idle
        self._release = release
        self._timers = ExitStack()
        """Cancels what it still wants to do."""

    def start(self) -> None:
        """The cluster is idle from now on."""
        self.stop()
        self._later(HOUR, lambda: self._remind(1))
        if most := self._pod.settings.sleep_max_hours:
            self._later(most * HOUR, self._end)

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._timers.callback(self._pod.machine.later(seconds, action).cancel)

    def _end(self) -> None:
        if not self._is_idle():
            self.start()
            return
        hours = self._pod.settings.sleep_max_hours
        self._pod.log.warning(f"the cluster was idle for {hours:g} h (A4_SLEEP_MAX_HOURS): it ends")
        self._release(JobEnd(Exit.INTERRUPTED, "the cluster was idle for too long"))

    def stop(self) -> None:
        """It works again, or ends."""
        self._timers.close()

    def _remind(self, hours: int) -> None:
        gpus = self._pod.settings.nnodes * self._pod.settings.gpus_per_node
        self._pod.log.warning(f"{gpus} GPUs have been idle for {hours} h; a4-agent release ends this cluster")
        self._later(HOUR, lambda: self._remind(hours + 1))

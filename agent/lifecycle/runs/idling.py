"""A sleeping cluster costs as much as one that works: say so every hour, and end it when it was told to."""

from __future__ import annotations

from collections.abc import Callable

from agent.lifecycle.pod.pod import Pod
from agent.machine.api import Timer

HOUR = 3600.0


class Idling:
    """Watches a sleeping cluster, on the coordinator. `release()` is called after A4_SLEEP_MAX_HOURS without a run."""

    def __init__(self, pod: Pod, release: Callable[[], None]) -> None:
        self._pod = pod
        self._release = release
        self._timers: list[Timer] = []

    def start(self) -> None:
        """The cluster is idle from now on."""
        self.stop()
        self._remind(1)
        most = self._pod.settings.sleep_max_hours
        if most:
            self._after(most * HOUR, self._release)

    def stop(self) -> None:
        """It works again, or ends."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _remind(self, hours: int) -> None:
        def say() -> None:
            settings = self._pod.settings
            gpus = settings.nnodes * settings.gpus_per_node
            self._pod.log.warning(f"{gpus} GPUs have been idle for {hours} h; a4-agent release ends this cluster")
            self._remind(hours + 1)

        self._after(HOUR, say)

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        self._timers.append(self._pod.machine.later(seconds, action))

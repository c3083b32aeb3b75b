"""The workers that are gone: why, and since when."""

from __future__ import annotations

from collections.abc import Callable

from agent.decide.messages import Cluster, Said
from agent.decide.pod_state import Loss
from agent.lifecycle.pod.pod import Pod

SHOWN = 12
"""Lost pods that the log names one by one. A lost rack would be hundreds of lines."""


class LostPods:
    """Known from the plan on, and told to every pod for its `status`. Who says that it ends is lost from then on."""

    def __init__(self, pod: Pod, say: Callable[[Said], None]) -> None:
        self._pod = pod
        self._say = say
        self._lost: dict[int, Loss] = {}
        self._untold: dict[int, Loss] = {}
        """Those of which nobody has been told yet."""

    def note(self, index: int, reason: str) -> None:
        """The first reason stays."""
        if index in self._lost or self._pod.known.plan is None:
            return
        if not self._untold:
            # Pods are often lost together: those lost within this time are told together.
            self._pod.machine.later(0.1, self._tell)
        self._lost[index] = self._untold[index] = Loss(reason, self._pod.machine.wall())

    def _tell(self) -> None:
        """Tell this pod's log, its state and all other pods what is new."""
        new, self._untold = self._untold, {}
        if not new:
            return
        for index, loss in list(new.items())[:SHOWN]:
            self._pod.log.warning(f"{self._pod.where(index)}, is lost: {loss.why}")
        more = f"{len(new) - SHOWN} more pods are lost; " if len(new) > SHOWN else ""
        left = self._pod.settings.nnodes - len(self._lost)
        are_left = "1 pod is left" if left == 1 else f"{left} pods are left"
        self._pod.log.warning(f"{more}{are_left}: a4-agent peers lists them")
        self._pod.state.lose(new)
        self._say(Cluster(lost=new))

    def found(self, index: int) -> None:
        """It is there again, or another one in its place."""
        self._untold.pop(index, None)
        if self._lost.pop(index, None) is not None:
            self._pod.state.found(index)
            self._say(Cluster(found=index))

    def reasons(self) -> dict[int, str]:
        """Why each lost pod is lost, by index."""
        return {index: lost.why for index, lost in self._lost.items()}

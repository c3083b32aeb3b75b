"""The workers that are gone: why, and since when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent.decide.messages import Message
from agent.errors import PeerLost
from agent.lifecycle.pod import Pod


class Losses:
    """Known from the plan on, and told to every pod for its `status`. Who says that it ends is lost from then on."""

    def __init__(self, pod: Pod, say: Callable[[Message], None]) -> None:
        self._pod = pod
        self._say = say
        self._lost: dict[str, dict[str, Any]] = {}
        """As it stands in the state: index → `why` and `since`."""

    def note(self, index: int, reason: str) -> None:
        """The first reason stays."""
        if str(index) in self._lost or self._pod.plan is None:
            return
        self._lost[str(index)] = {"why": reason, "since": self._pod.machine.wall()}
        left = self._pod.settings.nnodes - len(self._lost)
        self._pod.log.warning(f"peer {index} is lost ({reason}); {left} pods are left")
        self._pod.update_state(lost=self._lost)
        self._say({"type": "cluster", "lost": self._lost})

    def reasons(self) -> dict[int, str]:
        return {int(index): str(lost["why"]) for index, lost in self._lost.items()}

    def error(self, index: int) -> PeerLost:
        """For whoever asks for a pod that cannot be talked to."""
        why = self.reasons().get(index)
        return PeerLost(f"pod {index} is lost: {why}" if why else f"there is no pod {index}")

"""Where the processes of a run, one on each pod, wait for each other: op `arrive` of the control channel."""

from __future__ import annotations

from collections.abc import Callable, Set

from agent.lifecycle.channel.questions import Answer
from agent.lifecycle.waits import REPORT_SECONDS
from agent.machine.api import Clock

MOST_SAID = 4096
"""Characters that one pod may leave for the others."""


class Meetings:
    """Those of one run, by name. `expected()`: pods whose part is not over."""

    def __init__(self, clock: Clock, expected: Callable[[], Set[int]]) -> None:
        self._clock = clock
        self._expected = expected
        self._said: dict[str, dict[int, str]] = {}
        """Meeting → pod that has arrived → what it says there."""
        self._waiting: dict[str, list[Answer]] = {}

    def arrive(self, name: str, pod: int, says: str, answer: Answer) -> None:
        """Answer when all have arrived, or are over: what those who have arrived said. Raises ValueError."""
        if pod not in self._expected() or len(says) > MOST_SAID:
            raise ValueError(f"pod {pod} says {len(says)} characters at {name!r}")
        self._said.setdefault(name, {})[pod] = says
        self._waiting.setdefault(name, []).append(answer)

        def report() -> None:
            waiting = self._waiting.get(name, [])
            if answer in waiting:
                waiting.remove(answer)
                answer({"ok": {"missing": self._missing(name)}})

        self._clock.later(REPORT_SECONDS, report)
        self._look_at(name)

    def look(self) -> None:
        """Answer those for whom nobody is missing any more."""
        for name in list(self._waiting):
            self._look_at(name)

    def _look_at(self, name: str) -> None:
        if self._missing(name):
            return
        said = {str(pod): says for pod, says in self._said[name].items()}
        for answer in self._waiting.pop(name, []):
            answer({"ok": {"said": said}})

    def _missing(self, name: str) -> list[int]:
        """Pods that have not arrived and still can: nobody waits for one whose part is over."""
        return sorted(self._expected() - self._said[name].keys())

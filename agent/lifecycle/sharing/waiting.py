"""Looks into the shared directory again and again until a wait is over."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from agent.decide.sync.beats import LEADER_SECONDS, poll_seconds
from agent.decide.sync.facts import file_prefixes
from agent.decide.sync.waiting import FactWait, WaitOutcome
from agent.errors import Exit
from agent.lifecycle.waits import REPORT_SECONDS
from agent.machine.shared_files import Clock, SharedAnswer, SharedFiles

MOST_FAILURES = 3
"""Looks one after the other that may fail, each after 10 s when the directory hangs."""


@dataclass
class SharedWaiting:
    """One wait. `ended` is called once with its outcome; `say` gets what people should know meanwhile."""

    files: SharedFiles
    clock: Clock
    wait: FactWait
    _: KW_ONLY
    pods: int
    say: Callable[[str], None]
    ended: Callable[[WaitOutcome], None]
    chance: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        self._failures = 0
        """One after the other, up to now."""
        self._warned: set[str] = set()
        self._report_at = self.clock.now() + REPORT_SECONDS

    def look(self) -> None:
        """Begin, or go on."""
        self.files.look(self.wait.job, (), (), self._looked)

    def _looked(self, answer: SharedAnswer) -> None:
        if answer.why:
            self._fail(answer.why)
            return
        now, was_known = self.clock.now(), self.wait.place is not None
        outcome = self.wait.look(now, answer.value["names"])
        place = self.wait.place
        if place and not was_known:
            self._report_at = now
        if outcome or place is None:
            self._go_on(outcome)
        else:
            known = list(self.wait.facts)

            def judge(answer: SharedAnswer) -> None:
                if answer.why:
                    self._fail(answer.why)
                else:
                    found: dict[str, Any] = answer.value
                    now = self.clock.now()
                    self._go_on(self.wait.judge(now, found["names"], found["texts"], found["problems"]))

            self.files.look(place.directory, file_prefixes(self.wait.name), known, judge)

    def _fail(self, why: str) -> None:
        """The directory could not be looked at."""
        self._failures += 1
        if self._failures >= MOST_FAILURES:
            self.ended(unusable(why))
        else:
            self.clock.later(LEADER_SECONDS, self.look)

    def _go_on(self, outcome: WaitOutcome | None) -> None:
        self._failures = 0
        if outcome is not None:
            self._end(outcome)
            return
        for file, why in self.wait.problems.items():
            if file not in self._warned:
                self._warned.add(file)
                self.say(f"warning: {file} is not a fact: {why}")
        now = self.clock.now()
        if now >= self._report_at:
            self._report_at = now + REPORT_SECONDS
            self.say(self.wait.report())
        seconds = poll_seconds(self.pods, self.chance()) if self.wait.place else LEADER_SECONDS
        self.clock.later(seconds, self.look)

    def _end(self, outcome: WaitOutcome) -> None:
        """Pods that seem lost may be alive, and their beats refused, in a directory that nobody can write any more."""

        def tried(answer: SharedAnswer) -> None:
            self.ended(unusable(f"{answer.why}; {outcome.what}") if answer.why else outcome)

        if outcome.code == Exit.TRY_AGAIN:
            self.files.try_(tried)
        else:
            self.ended(outcome)


def unusable(why: str) -> WaitOutcome:
    return WaitOutcome(Exit.DIRECTORY, f"the shared directory cannot be used any more: {why}")

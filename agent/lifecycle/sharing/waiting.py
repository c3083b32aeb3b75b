"""Looks into the shared directory again and again until a wait is over."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from agent.decide.sync.beats import LEADER_SECONDS, poll_seconds
from agent.decide.sync.facts import file_prefixes
from agent.decide.sync.waiting import FactWait, WaitOutcome
from agent.errors import Exit
from agent.lifecycle.waits import REPORT_SECONDS
from agent.machine.shared_files import SharedAnswer, SharedCommand, Steps, look

MOST_FAILURES = 3
"""Looks one after the other that may fail, each after 10 s when the directory hangs."""


def await_facts(
    wait: FactWait,
    pods: int,
    say: Callable[[str], None],
    *,
    now: Callable[[], float] = time.monotonic,
    chance: Callable[[], float] = random.random,
) -> Steps[WaitOutcome]:
    """One wait, to its outcome; `say` gets what people should know meanwhile."""
    failures, warned, report_at = 0, set[str](), now() + REPORT_SECONDS
    while True:
        was_known = wait.place is not None
        answer, outcome = yield from _look(wait, now)
        if answer.why:
            failures += 1
            if failures >= MOST_FAILURES:
                return _unusable(answer.why)
            yield LEADER_SECONDS
            continue
        if outcome is not None:
            return (yield from _checked(outcome))
        failures = 0
        for file, why in wait.problems.items():
            if file not in warned:
                warned.add(file)
                say(f"warning: {file} is not a fact: {why}")
        if now() >= report_at or (wait.place and not was_known):
            report_at = now() + REPORT_SECONDS
            say(wait.report())
        yield poll_seconds(pods, chance()) if wait.place else LEADER_SECONDS


def _look(wait: FactWait, now: Callable[[], float]) -> Steps[tuple[SharedAnswer, WaitOutcome | None]]:
    """At who is alive and, once it is known where they are, at the facts."""
    answer = yield look(wait.job)
    outcome = None if answer.why else wait.look(now(), answer.value["names"])
    place = wait.place
    if answer.why or outcome or place is None:
        return answer, outcome
    answer = yield look(place.directory, file_prefixes(wait.name), wait.facts)
    if not answer.why:
        found = answer.value
        outcome = wait.judge(now(), found["names"], found["texts"], found["problems"])
    return answer, outcome


def _checked(outcome: WaitOutcome) -> Steps[WaitOutcome]:
    """Pods that seem lost may be alive, and their beats refused, in a directory that nobody can write any more."""
    if outcome.code == Exit.TRY_AGAIN:
        tried = yield SharedCommand(("try",))
        if tried.why:
            return _unusable(f"{tried.why}; {outcome.what}")
    return outcome


def _unusable(why: str) -> WaitOutcome:
    return WaitOutcome(Exit.DIRECTORY, f"the shared directory cannot be used any more: {why}")

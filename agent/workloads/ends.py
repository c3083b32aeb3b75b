"""Ends that are the same for all workloads."""

from __future__ import annotations

from agent.decide.ending import JobEnd, from_status
from agent.decide.tail import last_lines
from agent.errors import Exit
from agent.workloads.base import FailedPart, Outcome, RunContext


def broken_off(context: RunContext, outcome: Outcome) -> JobEnd | None:
    """Why the run did not come to its own end: it was ended, or pods were lost."""
    if outcome.cause is None and outcome.lost:
        return JobEnd(Exit.TRY_AGAIN, "pods were lost during the run", why=context.losses(outcome.lost))
    return outcome.cause


def first_failure(context: RunContext, outcome: Outcome, what: str) -> JobEnd | None:
    """The end of a run by the pod whose process failed first; None where none did."""
    if outcome.first is None:
        return None
    end = from_status(outcome.statuses[outcome.first], what, context.where(outcome.first))
    return end._replace(why=last_lines(outcome.failures.get(outcome.first, FailedPart()).output))


def end_without_failure(context: RunContext, outcome: Outcome, what: str) -> JobEnd:
    """The end of a run none of whose processes failed by itself."""
    return broken_off(context, outcome) or JobEnd(0, f"{what} done", origin="workload")

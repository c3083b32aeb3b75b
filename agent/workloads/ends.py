"""Ends that are the same for all workloads."""

from __future__ import annotations

from dataclasses import replace

from agent.decide.ending import JobEnd, from_status, is_told, with_failure, with_losses
from agent.decide.tail import last_lines
from agent.errors import Exit
from agent.workloads.base import FailedPart, Judgement, Outcome, RunContext, Workload


def judged(workload: Workload, context: RunContext, outcome: Outcome, *, only_victims: bool) -> Judgement:
    """The verdict. What ended the run before goes before the failures of its processes, and has them below it; so do
    lost pods, where all failures are `only_victims` of others. A cancel while pods are asked whether they are there
    changes nothing of a failure."""
    if outcome.cause is not None:
        cause: JobEnd | None = with_losses(outcome.cause, outcome.lost, context.where)
    else:
        cause = broken_off(context, outcome) if only_victims else None
    if outcome.first is not None and cause is not None:
        judgement = workload.judge(context, replace(outcome, cause=None))
        failure = judgement.end
        if is_told(cause) and cause.code == Exit.INTERRUPTED and failure.code:
            return judgement._replace(end=with_failure(failure, cause))
        outcome = replace(outcome, first=None, cause=with_failure(cause, failure))
    return workload.judge(context, outcome)


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

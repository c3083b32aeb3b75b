"""What all workloads have in common that run a process on every pod."""

from __future__ import annotations

from agent.decide.ending import JobEnd
from agent.errors import Exit
from agent.workloads.base import Outcome, RunContext


def failed_pod(context: RunContext, outcome: Outcome) -> tuple[int, int] | None:
    """(completion index, status) of the process that failed, the first in the order of the plan; None: none did.

    While a run goes on, the outcome is that of one pod alone: `status`, of the pod `context.index`.
    """
    statuses = outcome.statuses or {context.index: outcome.status}
    order = [peer.index for peer in context.plan.peers]
    return next(((index, statuses[index]) for index in order if statuses.get(index)), None)


def end_without_failure(outcome: Outcome, what: str) -> JobEnd:
    """The end of a run none of whose processes failed."""
    if outcome.cause is not None:
        return outcome.cause
    if outcome.lost:
        return JobEnd(Exit.TRY_AGAIN, "pods were lost during the run", why=outcome.losses)
    return JobEnd(0, f"{what} done", origin="workload")

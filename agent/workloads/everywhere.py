"""What all workloads have in common that run a process on every pod."""

from __future__ import annotations

from agent.decide.ending import JobEnd
from agent.errors import Exit
from agent.workloads.base import Outcome


def failed_pod(outcome: Outcome) -> tuple[int, int] | None:
    """(completion index, status) of the process that failed first; None: none failed by itself."""
    return None if outcome.first is None else (outcome.first, outcome.statuses[outcome.first])


def end_without_failure(outcome: Outcome, what: str) -> JobEnd:
    """The end of a run none of whose processes failed by itself."""
    if outcome.cause is not None:
        return outcome.cause
    if outcome.lost:
        return JobEnd(Exit.TRY_AGAIN, "pods were lost during the run", why=outcome.losses)
    return JobEnd(0, f"{what} done", origin="workload")

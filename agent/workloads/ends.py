"""Ends that are the same for all workloads."""

from __future__ import annotations

from agent.decide.ending import JobEnd
from agent.errors import Exit
from agent.workloads.base import Outcome


def broken_off(outcome: Outcome) -> JobEnd | None:
    """Why the run did not come to its own end: it was ended, or pods were lost."""
    if outcome.cause is None and outcome.lost:
        return JobEnd(Exit.TRY_AGAIN, "pods were lost during the run", why=outcome.losses)
    return outcome.cause


def end_without_failure(outcome: Outcome, what: str) -> JobEnd:
    """The end of a run none of whose processes failed by itself."""
    return broken_off(outcome) or JobEnd(0, f"{what} done", origin="workload")

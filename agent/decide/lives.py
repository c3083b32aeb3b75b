"""Lives: whether a run that has ended starts again on the same cluster."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from agent.decide.ending import JobEnd, is_told
from agent.decide.words import lines
from agent.errors import Exit

LOST = "lost"
"""What A4_RESTART_ON calls a pod that is gone; everything else in it is an exit code of a workload's process."""


REPLACED = frozenset({int(Exit.TRY_AGAIN), 128 + 9, int(Exit.TERMINATED)})
"""Codes of lost pods, each of which a Job with lives replaces alone."""


class LifeEnd(NamedTuple):
    """A life that was followed by another."""

    since: float
    """When it began, in seconds since 1970, as are all moments here."""
    noticed: float
    """When the coordinator knew that it ends."""
    until: float
    """When nothing of it was left."""
    end: JobEnd
    lost: tuple[int, ...] = ()
    """Pods that were lost in it."""
    joined: float | None = None
    """When all pods were there for the next one."""
    next: float | None = None
    """When that began."""


def starts_again(end: JobEnd, rank_code: int | None, lost: Collection[int], reasons: str) -> bool:
    """Does the end of a life, as it was judged, give the run another one? `rank_code`: with what the rank ended that is
    the cause, where the launcher has a code of its own; `lost`: pods that were lost in this life; `reasons`:
    A4_RESTART_ON. What was told to end from outside never starts again."""
    wanted = reasons.split(",")
    if end.code == Exit.OK or is_told(end):
        return False
    if end.origin == "workload":
        return str(rank_code or end.code) in wanted
    return end.code == Exit.TRY_AGAIN and (LOST if lost else str(end.code)) in wanted


def with_code_of_job(end: JobEnd) -> JobEnd:
    """The end of a job whose lost pods are replaced. If all pods ended with the code of a lost one, each would be
    replaced as if it alone had been lost, and the job would have its lives again."""
    if is_told(end) or end.code not in REPLACED:
        return end
    why = f"exit code {Exit.LIVES_OVER} in place of {end.code}, after which every pod would be replaced"
    return end._replace(code=int(Exit.LIVES_OVER), why=lines(end.why, why), origin="agent")

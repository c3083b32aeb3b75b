"""Lives: whether a run that has ended starts again on the same cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from agent.decide.ending import JobEnd, is_told, pod_of
from agent.decide.facts import Finding
from agent.decide.words import lines
from agent.errors import Exit

LOST = "lost"
UNHEALTHY = "unhealthy"
STALLED = "stalled"
"""What A4_RESTART_ON calls pods that are gone, pods whose devices broke, and a run that printed nothing for too long;
everything else in it is an exit code of a workload's process."""

MOST_VAIN = 3
"""Lives that may end by the program's own fault without a newer step."""
REPLACED = frozenset({int(Exit.TRY_AGAIN), 128 + 9, int(Exit.TERMINATED)})
"""Codes of lost pods, each of which a Job with lives replaces alone."""


class LifeEnd(NamedTuple):
    """A life that is over."""

    since: float
    """When it began, in seconds since 1970, as are all moments here."""
    noticed: float
    """When the coordinator knew that it ends."""
    until: float
    """When nothing of it was left."""
    step: int | None
    """The newest of which its program wrote in A4_SERIES_FILE, or that Megatron printed; None: of none."""
    end: JobEnd
    lost: tuple[int, ...] = ()
    """Pods that were lost in it, or are replaced because of it."""
    joined: float | None = None
    """When all pods were there for the next one."""
    next: float | None = None
    """When that began."""


def reasons(
    end: JobEnd,
    rank_code: int | None = None,
    *,
    lost: Collection[int] = (),
    unhealthy: Collection[int] = (),
    stalled: bool = False,
) -> set[str]:
    """Which words in A4_RESTART_ON would give another life to a run whose life was judged so; none where it was told to
    end from outside. `rank_code`: with what the rank ended that is the cause, where the launcher has a code of its own;
    `lost`: pods that were lost in this life; `unhealthy`: see `unhealthy_pods`; `stalled`: it printed nothing for too
    long."""
    if end.code == Exit.OK or is_told(end):
        return set()
    is_own, found = end.origin == "workload", set()
    if unhealthy and (is_own or end.code == Exit.TIME_LIMIT):
        found.add(UNHEALTHY)  # a program rarely knows why, and ends with 1, or hangs
    if stalled and end.code == Exit.TIME_LIMIT:
        found.add(STALLED)
    if is_own:
        found.add(str(rank_code or end.code))
    elif end.code == Exit.TRY_AGAIN:
        found.add(LOST if lost else str(end.code))
    return found


def unhealthy_pods(findings: Iterable[Finding]) -> dict[int, str]:
    """The pods whose devices broke during a life, and how: they are to be replaced. Not with pod 0 among them, whose
    replacement would be a new job."""
    found: dict[int, str] = {}
    for one in findings:
        if one.state == "bad" and one.severity == "fatal":
            device = f" on {one.device}" if one.device else ""
            found.setdefault(one.pod, f"{one.check}: {one.value}{device}")
    return {} if 0 in found else found


def no_progress(lives: Sequence[LifeEnd]) -> str:
    """Why a run that has had these lives would gain nothing by another one; empty: it might. A lost pod says nothing of
    the program, and without the steps that it writes nobody knows how far it came."""
    last = lives[-1]
    if _is_own(last) and last.step is not None:
        for number, one in enumerate(lives[:-1], 1):
            if (one.step, _how(one.end)) == (last.step, _how(last.end)):
                return f"life {number} ended in the same way at the same step, {last.step}"
    furthest, vain = -1, 0
    for one in lives:
        if one.step is not None and one.step > furthest:
            furthest, vain = one.step, 0
        elif _is_own(one):
            vain += 1
    if furthest >= 0 and vain >= MOST_VAIN:
        return f"{vain} lives have not come further than step {furthest}"
    return ""


def _is_own(life: LifeEnd) -> bool:
    """The program has ended it by itself."""
    return life.end.origin == "workload" and not life.lost


def _how(end: JobEnd) -> tuple[int, str, int | None]:
    """The pod by its index: its name changes when it is replaced."""
    return end.code, end.what, pod_of(end.where)


def with_code_of_job(end: JobEnd, vain: str) -> JobEnd:
    """The end of a job whose lost pods are replaced. If all pods ended with the code of a lost one, each would be
    replaced as if it alone had been lost, and the job would have its lives again. `vain`: why none would help it."""
    if is_told(end) or not (vain or end.code in REPLACED):
        return end
    code = Exit.NO_PROGRESS if vain else Exit.LIVES_OVER
    after = "may start it anew" if vain else "would replace every pod"
    why = f"exit code {code} in place of {end.code}, after which Kubernetes {after}"
    return end._replace(code=int(code), why=lines(end.why, why), origin="agent")

"""Trainings of Megatron, thinned, and as one through the lives of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent.decide.result import Iteration, Training

MOST_KEPT = 1000
"""Iterations of one training; a message has a limit."""


def kept(iterations: Sequence[Iteration]) -> tuple[Iteration, ...]:
    """At most MOST_KEPT of them, evenly chosen, with the first and the last."""
    count = len(iterations)
    if count <= MOST_KEPT:
        return tuple(iterations)
    return tuple(iterations[round(at * (count - 1) / (MOST_KEPT - 1))] for at in range(MOST_KEPT))


def newest_iteration(trainings: Iterable[Training]) -> int | None:
    """Counted on from one stage to the next; None: none was made."""
    newest = [one.iterations[-1].iteration for one in trainings if one.iterations]
    return sum(newest) if newest else None


def continued_trainings(earlier: Iterable[Training], later: Iterable[Training]) -> tuple[Training, ...]:
    """The trainings of a run that has started again: what was made before counts up to the iteration with which the
    next life went on."""
    found = {one.stage: one for one in earlier}
    for one in later:
        found[one.stage] = _joined(found[one.stage], one) if one.stage in found else one
    return tuple(found.values())


def _joined(before: Training, one: Training) -> Training:
    """Iterations that were made twice count twice, as GPU time was spent on both."""
    first = one.iterations[0].iteration if one.iterations else one.planned + 1
    iterations = [*(each for each in before.iterations if each.iteration < first), *one.iterations]
    return one._replace(
        count=before.count + one.count,
        skipped=before.skipped + one.skipped,
        nans=before.nans + one.nans,
        iterations=kept(iterations),
    )

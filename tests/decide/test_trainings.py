"""Trainings of Megatron through the lives of a run."""

from __future__ import annotations

import pytest

from agent.decide.result import Iteration, Training
from agent.decide.trainings import MOST_KEPT, continued_trainings, newest_iteration


def training(*numbers: int, stage: str = "train", nans: int = 0) -> Training:
    """`loss` says how many iterations it was made after, so that lives can be told apart."""
    made = tuple(Iteration(number, float(at), None, None, None, 0, 0) for at, number in enumerate(numbers))
    return Training(stage, 9, len(numbers), 1, nans, made)


@pytest.mark.parametrize(
    ("earlier", "later", "shown", "count", "newest"),
    [
        ([], [training(1, 2)], [(1, 0), (2, 1)], 2, 2),
        ([training(1, 2, 3, 4)], [training(3, 4, 5)], [(1, 0), (2, 1), (3, 0), (4, 1), (5, 2)], 7, 5),
        ([training(1, 2, 3)], [training()], [(1, 0), (2, 1), (3, 2)], 3, 3),
        ([training(4, 5)], [training(1, 2)], [(1, 0), (2, 1)], 4, 2),
        ([training(1, 2)], [], [(1, 0), (2, 1)], 2, 2),
    ],
)
def test_a_later_life_counts_from_where_it_begins(
    earlier: list[Training], later: list[Training], shown: list[tuple[int, int]], count: int, newest: int
) -> None:
    (found,) = continued_trainings(earlier, later)
    assert [(one.iteration, one.loss) for one in found.iterations] == shown
    assert (found.count, newest_iteration([found])) == (count, newest)


def test_stages_are_told_apart_and_long_ones_thinned() -> None:
    sft = training(1, stage="json-sft", nans=2)
    found = continued_trainings([sft, training(*range(1, 1001))], [training(*range(501, 1501), nans=1)])
    assert (found[0], found[1].skipped, found[1].nans) == (sft, 2, 1)
    shown = [one.iteration for one in found[1].iterations]
    assert (len(shown), shown[0], shown[-1]) == (MOST_KEPT, 1, 1500) and shown == sorted(set(shown))
    assert newest_iteration(found) == 1501 and newest_iteration([]) is newest_iteration([training()]) is None

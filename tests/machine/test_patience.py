"""How often something is tried again that the network has broken off."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agent.machine.patience import LONGEST_WAIT, Patience


@pytest.mark.parametrize(
    ("there", "over"),
    [
        ([0, 0, 0, 0], [False, False, True]),
        ([7, 7, 7, 7], [False, False, True]),
        ([0, 1, 2, 3, 4, 5, 6], [False] * 6),
        ([0, 1, 1, 1, 2, 2, 2, 2], [False] * 6 + [True]),
        ([0, 5, 3, 4, 5], [False, False, False, True]),
    ],
    ids=[
        "nothing comes",
        "nothing comes to what was there",
        "something comes",
        "something comes now and then",
        "what came is begun anew",
    ],
)
def test_it_ends_after_three_tries_in_a_row_that_brought_nothing(there: Sequence[int], over: Sequence[bool]) -> None:
    seen = iter(there)
    patience = Patience(3, lambda: next(seen))
    found = []
    for _ in over:
        patience.count(None)
        found.append(patience.is_over(None))
    assert found == over


def test_it_waits_longer_while_nothing_comes() -> None:
    patience = Patience(100)
    waits = []
    for _ in range(20):
        patience.count(None)
        waits.append(patience.seconds(None))
    assert waits[0] < 2 and waits[:6] == sorted(waits[:6]) and LONGEST_WAIT <= waits[-1] < LONGEST_WAIT + 1

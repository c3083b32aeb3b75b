"""How often a download is tried again that the network has broken off."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agent.machine.patience import LONGEST_WAIT, retrying


def fail() -> None:
    raise ConnectionError("it broke off")


@pytest.mark.parametrize(
    ("there", "tries"),
    [
        ([0, 0, 0, 0], 3),
        ([7, 7, 7, 7], 3),
        ([0, 1, 1, 1, 2, 2, 2, 2], 7),
        ([0, 5, 3, 4, 5], 4),
    ],
    ids=["nothing comes", "nothing comes to what was there", "something comes now and then", "what came is begun anew"],
)
def test_it_ends_after_three_tries_in_a_row_that_brought_nothing(there: Sequence[int], tries: int) -> None:
    seen, waits, said = iter(there), list[float](), list[str]()
    with pytest.raises(ConnectionError):
        retrying(ConnectionError, 3, said.append, lambda: next(seen)).copy(sleep=waits.append)(fail)
    assert len(waits) == len(said) == tries - 1
    assert next(seen, None) is None
    assert said[0].startswith("it broke off; again in ")


def test_it_waits_longer_while_nothing_comes() -> None:
    waits: list[float] = []
    with pytest.raises(ConnectionError):
        retrying(ConnectionError, 20, lambda text: None).copy(sleep=waits.append)(fail)
    assert waits[0] < 2 and waits[:6] == sorted(waits[:6]) and LONGEST_WAIT <= waits[-1] < LONGEST_WAIT + 1

"""All ways to hang of tests/clinic/hangs.py with real ranks: most are named, and no healthy rank is blamed."""

from __future__ import annotations

import pytest

from agent.clinic.interface import diagnose
from tests.clinic.cluster.hangs import cluster_of_hangs, judged, looks
from tests.clinic.hangs import HANGS, LEAST_RIGHT, blamed, is_right
from tests.cluster.conftest import Start


@pytest.mark.faults
def test_no_healthy_rank_is_blamed_for_any_hang_and_most_are_named(start: Start) -> None:
    wrong = []
    for hang, look in looks(cluster_of_hangs(start), [hang.name for hang in HANGS]):
        found = diagnose(judged(hang, look))
        assert blamed(found) <= set(hang.guilty), (hang, found)
        wrong += [] if is_right(hang, found) else [(hang.name, found.sentence)]
    assert len(HANGS) - len(wrong) >= LEAST_RIGHT, wrong

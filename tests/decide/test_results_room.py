"""Which results of earlier runs make room."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.decide.results_room import KEPT_RUNS, StoredRun, surplus

stored = st.builds(lambda rest, logs: (rest + logs, logs), st.integers(0, 9), st.integers(0, 100))


@given(st.lists(stored, max_size=2 * KEPT_RUNS), st.integers(0, 2000))
def test_the_oldest_logs_go_first_and_no_more_than_must(sizes: list[tuple[int, int]], most: int) -> None:
    runs = [StoredRun(str(number), *size) for number, size in enumerate(sizes)]
    removed = surplus(runs, most)
    assert [*removed.runs] == [one.run for one in runs[: max(0, len(runs) - KEPT_RUNS)]]
    kept = runs[len(removed.runs) :]
    of_logs = [one for one in kept if one.run in removed.logs]
    with_logs = [one for one in kept if one.logs]
    assert of_logs == with_logs[: len(of_logs)]
    left = sum(one.size for one in kept) - sum(one.logs for one in of_logs)
    assert left <= most or of_logs == with_logs
    assert not of_logs or left + of_logs[-1].logs > most

"""What the records of all ranks say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.ranks import RankEnd, RanksVerdict, as_json, parse_rank, ranks_verdict

WELL = RankEnd(0)


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("started 12\nended 0 \n", WELL),
        ("started 12\nended 7 1795262432.074325327\n", RankEnd(7, 1795262432.074325327)),
        ("started 12\nended 7 1795262432.%N\n", RankEnd(None)),
        ("started 12\nnobody\nended 69 1795262432.5\n", RankEnd(69, 1795262432.5, unclaimed=True)),
        ("started 12\nrefused\nended 127 1795262432.5\n", RankEnd(127, 1795262432.5, refused=True)),
        ("started 12\n", RankEnd(None)),
        ("started 12 of b-2\nrefused\nended 127 5.5 of b-2\n", RankEnd(127, 5.5, True, "b-2")),
        ("started 12 of b\nended 0  of a\n", RankEnd(None, step="b")),
        ("started 12 of b\nended 143 5.5 of a\nended 0  of b\n", RankEnd(0, step="b")),
        ("started 12 of b\nended 0 \n", RankEnd(None, step="b")),
        ("started 12\nended 7", RankEnd(None)),
    ],
)
def test_reading_a_record(text: str, end: RankEnd) -> None:
    assert parse_rank(text) == end


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    parse_rank(text)


def of(ranks: dict[int, RankEnd], planned: int = 4) -> RanksVerdict:
    """Two ranks per pod; the order of the plan is pods 3, 1, 0, …"""
    return ranks_verdict(ranks, planned, lambda rank: (3, 1, 0, 2)[rank // 2])


def test_nothing_is_not_complete_and_more_ranks_than_planned_are_another_runs() -> None:
    found = of({})
    assert not found.complete and not found.started and found.code == 0
    assert found.text == "never started: ranks 0-3 (pods 1,3)"
    assert not of({}, 0).complete
    assert of(dict.fromkeys(range(8), WELL)).complete and of({0: WELL}).started


@pytest.mark.parametrize(
    ("ends", "first"),
    [
        ({0: RankEnd(143, 100.0), 2: RankEnd(7, 100.9)}, 2),
        ({0: RankEnd(14, 100.0), 2: RankEnd(7, 100.9)}, 2),
        ({0: RankEnd(143, 100.0), 2: RankEnd(7, 102.0)}, 0),
        ({0: RankEnd(137, 100.0), 2: RankEnd(1, 100.1)}, 0),
        ({0: RankEnd(143, 100.1), 2: RankEnd(143, 100.0)}, 2),
        ({0: RankEnd(9), 2: RankEnd(7, 100.0)}, 0),
        ({0: RankEnd(143), 2: RankEnd(7, 100.0)}, 2),
    ],
)
def test_which_rank_failed_first(ends: dict[int, RankEnd], first: int) -> None:
    found = of({**dict.fromkeys(range(4), WELL), **ends})
    assert (found.first, found.code) == (first, ends[first].code)
    assert not found.complete


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ({1: RankEnd(137, 1.0)}, "rank 1 on pod 3 was killed by SIGKILL (137)"),
        ({1: RankEnd(200, 1.0)}, "rank 1 on pod 3 ended with exit code 200"),
        ({2: RankEnd(127, 1.0, refused=True)}, "rank 2 on pod 1 could not start its program: it was not found"),
        ({2: RankEnd(126, 1.0, refused=True)}, "rank 2 on pod 1 could not start its program: it cannot be executed"),
        (
            {0: RankEnd(None), 1: RankEnd(143, 1.5), 2: RankEnd(7, 1.0), 3: RankEnd(9, 1.5)},
            "rank 2 on pod 1 ended with exit code 7\n"
            "ended because of it: ranks 0-1 (pod 3)\n"
            "failed, too: rank 3 (pod 1)",
        ),
        (
            {0: RankEnd(None), 1: RankEnd(143, 1.5), 2: RankEnd(143, 1.0)},
            "rank 2 on pod 1 was killed by SIGTERM (143)\nfailed, too: rank 1 (pod 3)\n"
            "started and never ended: rank 0 (pod 3)",
        ),
    ],
)
def test_in_words(ends: dict[int, RankEnd], text: str) -> None:
    assert of({**dict.fromkeys(range(4), WELL), **ends}).text == text
    more = of({**dict.fromkeys(range(4), WELL), **ends}, 5).text
    assert {*more.splitlines()} == {*text.splitlines(), "never started: rank 4 (pod 0)"}


def test_for_result_json() -> None:
    ends = {0: WELL, 1: WELL, 2: RankEnd(7), 3: RankEnd(None)}
    assert as_json(ends, 6) == {
        "ranks": 6,
        "ended": {"0": "0-1", "7": "2", "never ended": "3", "never started": "4-5"},
    }


ends = st.builds(RankEnd, st.none() | st.integers(0, 255), st.floats(0, 1e10))


@given(st.dictionaries(st.integers(0, 20), ends), st.integers(1, 16))
def test_complete_is_all_zero(ranks: dict[int, RankEnd], planned: int) -> None:
    found = ranks_verdict(ranks, planned, lambda rank: rank // 2)
    assert found.complete == all(rank in ranks and ranks[rank].code == 0 for rank in range(planned))
    assert (found.text == "") == found.complete
    assert (found.code != 0) == (found.first is not None)

"""What goes into a bundle, how much of it, and what is said of the rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide import bundle


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 3 * bundle.MOST_FILE)), st.integers(-9, 1 << 26))
def test_small_files_are_whole_and_large_ones_have_as_much_as_each_other(sizes: dict[str, int], most: int) -> None:
    shares = bundle.shares(sizes, most)
    assert shares.keys() == sizes.keys() and sum(shares.values()) <= max(0, most)
    assert all(0 <= share <= min(sizes[name], bundle.MOST_FILE) for name, share in shares.items())
    cut = [share for name, share in shares.items() if share < min(sizes[name], bundle.MOST_FILE)]
    if cut:
        assert min(cut) + len(sizes) >= max(shares.values())  # nobody has more than who was cut
        assert sum(shares.values()) + len(sizes) >= most  # and nothing is left


@pytest.mark.parametrize("pods", [1, 9, 10, 64, 1024, 100_000])
def test_the_parts_of_all_pods_fit(pods: int) -> None:
    assert 0 < bundle.most_part(pods) < bundle.MOST_PART
    assert pods * bundle.most_part(pods) < bundle.MOST_BUNDLE


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("result.json", True),
        ("ranks/12", True),
        ("why/4711.nccl.json", True),
        ("why/ras.txt", True),
        ("why/4711.sock", False),
        ("why/dump-0", False),
        ("series.jsonl", False),
        ("torch-error.json", False),
        ("ranks-output/rank.0", False),
        ("start-rank-3.txt", False),
        ("result.json\n", False),
    ],
)
def test_what_of_a_run_is_taken(name: str, wanted: bool) -> None:
    assert bool(bundle.OF_RUN.fullmatch(name)) == wanted


@pytest.mark.parametrize(
    ("status", "errors", "whole", "said"),
    [
        (0, "Warning: something", True, ""),
        (0, "", False, "its part is damaged"),
        (None, "", True, "it did not answer within 45 s"),
        (255, "ssh: connect to host a:\n Connection refused\n", False, "ssh: connect to host a: Connection refused"),
        (255, "", True, "its part was not made in time, or the connection broke"),
        (70, "", True, "it ended with 70"),
        (-14, "", True, "it was ended by signal 14"),
        (1, "x" * 1000, False, "x" * 300),
    ],
)  # fmt: skip
def test_why_a_part_is_missing(status: int | None, errors: str, whole: bool, said: str) -> None:
    assert bundle.part_problem(status, errors, whole, 45.0) == said


def test_whether_the_agent_lives() -> None:
    assert bundle.agent_problem(True, 5.0) == ""
    assert bundle.agent_problem(True, 61.0).startswith("the agent of this pod has not shown life for 61 s")
    assert bundle.agent_problem(False, 1.0) == bundle.agent_problem(True, None)
    assert bundle.agent_problem(False, 1.0).startswith("no a4-agent runs in this pod")


def test_what_a_bundle_has_in_a_line() -> None:
    assert bundle.summary(64, [], "") == "64 pods"
    assert bundle.summary(2, ["pod 2", "pod 5"], "") == "2 pods, without pod 2 and pod 5"
    assert bundle.summary(1, ["pod 2"], "") == "this pod alone (no other pod answers), without pod 2"
    assert bundle.summary(1, [], "") == "1 pod"
    assert bundle.summary(1, [], "no cluster is formed") == "this pod alone (no cluster is formed)"
    assert bundle.missing_text({"pod 1": ["a\n  b", "c"], "pod 2": []}) == "pod 1: a b\npod 1: c\n"
    assert bundle.missing_text({"pod 1": []}) == "nothing\n"


@pytest.mark.parametrize("text", [b"", b"\xff", b"[]", b"{}", b"[" * 100_000, b'{"version": 99, "run": "a"}'])
def test_a_result_that_is_of_no_use(text: bytes) -> None:
    assert bundle.run_of_result(text) is None

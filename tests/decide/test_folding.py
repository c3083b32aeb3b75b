"""Equal output shown once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.folding import FoldedGroup, failures, fold, shown

OUTPUTS = st.dictionaries(st.integers(0, 20), st.sampled_from([b"", b"a", b"a\n", b"b\nc\n", b"\n"]))


@given(OUTPUTS)
def test_every_pod_that_printed_is_in_one_group(outputs: dict[int, bytes]) -> None:
    groups = fold(outputs)
    assert sorted(pod for group in groups for pod in group.pods) == sorted(pod for pod in outputs if outputs[pod])
    assert all(outputs[pod] == group.text for group in groups for pod in group.pods)
    assert len({group.text for group in groups}) == len(groups)


@given(OUTPUTS)
def test_groups_come_in_the_order_of_their_first_pods(outputs: dict[int, bytes]) -> None:
    groups = fold(outputs)
    assert [group.pods[0] for group in groups] == sorted(group.pods[0] for group in groups)
    assert all(list(group.pods) == sorted(group.pods) for group in groups)


def test_nothing_printed() -> None:
    assert fold({0: b"", 1: b""}) == []
    assert list(shown([])) == []


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        ({0: b"a\n", 1: b"a\n", 2: b"a\n"}, b"0-2: a\n"),
        ({0: b"host-0\n", 1: b"host-1\n"}, b"0: host-0\n1: host-1\n"),
        ({0: b"a\n", 1: b"b", 2: b"a\n", 3: b"a\n", 5: b""}, b"0,2-3: a\n1: b\n"),
        ({4: b"\n"}, b"4: \n"),
        ({0: b"a\nb\n", 1: b"a\nb\n"}, b"== pods 0-1 ==\na\nb\n"),
        ({0: b"a\n\n", 1: b"c"}, b"== pod 0 ==\na\n\n== pod 1 ==\nc\n"),
        ({0: b"\xff\n", 1: b"\xff\n"}, b"0-1: \xff\n"),
    ],
)
def test_shown(outputs: dict[int, bytes], text: bytes) -> None:
    assert b"".join(shown(fold(outputs))) == text


def test_the_pods_of_a_group() -> None:
    assert fold({9: b"x", 2: b"x", 5: b"y"}) == [FoldedGroup((2, 9), b"x"), FoldedGroup((5,), b"y")]


@pytest.mark.parametrize(
    ("codes", "lost", "lines"),
    [
        ({0: 0, 1: 0}, {}, []),
        ({0: 0, 3: 7}, {}, ["pod 3: exit code 7"]),
        ({0: 1, 1: 2, 2: 1}, {}, ["pods 0,2: exit code 1", "pod 1: exit code 2"]),
        ({0: 137}, {}, ["pod 0: exit code 137 (SIGKILL)"]),
        ({0: 255}, {}, ["pod 0: exit code 255"]),
        ({0: 0}, {1: "silent", 2: "silent"}, ["pods 1-2: lost: silent"]),
        ({0: 0, 1: 3}, {1: "its node is gone"}, ["pod 1: lost: its node is gone"]),
    ],
)
def test_failures(codes: dict[int, int], lost: dict[int, str], lines: list[str]) -> None:
    assert failures(codes, lost) == lines

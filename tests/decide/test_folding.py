"""Equal output shown once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.ending import failures
from agent.decide.subset import index_range
from agent.decide.tail import folded

OUTPUTS = st.dictionaries(st.integers(0, 20), st.sampled_from([b"", b"a", b"a\n", b"b\nc\n", b"\n"]))


@given(OUTPUTS)
def test_every_pod_that_printed_is_shown_once_with_its_text(outputs: dict[int, bytes]) -> None:
    printed = {pod: f"{text.decode()}\n".encode() * 2 for pod, text in outputs.items() if text}  # several lines each
    shown = [text.split(b" ==\n", 1) for text in folded({**outputs, **printed})]
    pods = [
        [pod for word in head.split()[-1].decode().split(",") for pod in index_range(word) or ()] for head, _ in shown
    ]
    assert sorted(pod for group in pods for pod in group) == sorted(printed)
    assert all(printed[pod] == text for group, (_, text) in zip(pods, shown, strict=True) for pod in group)
    assert len({text for _, text in shown}) == len(shown)
    assert [group[0] for group in pods] == sorted(group[0] for group in pods)
    assert all(group == sorted(group) for group in pods)


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
    assert b"".join(folded(outputs)) == text


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

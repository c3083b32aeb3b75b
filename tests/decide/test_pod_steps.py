"""What is done in a pod before workloads find everything around them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.fabrics.profiles import LEFT_BEHIND, LEFT_IN, Copying, placing

NAMES = st.sets(st.sampled_from("abcd"))


@pytest.mark.parametrize(
    ("left", "present", "places", "words"),
    [
        ({}, [], [], ["no files to place: no gIB installer left any in /dev/shm"]),
        ({"scripts": []}, [], [(["/dev/shm/scripts"], "/")], []),
        (
            {"scripts": ["b", "a"]},
            ["/scripts"],
            [(["/dev/shm/scripts/a", "/dev/shm/scripts/b"], "/scripts/")],
            [],
        ),
        ({"scripts": ["b", "a"]}, ["/scripts", "/scripts/a"], [(["/dev/shm/scripts/b"], "/scripts/")], []),
        ({"scripts": ["a"]}, ["/scripts", "/scripts/a"], [], ["/scripts is there already"]),
        (
            {"scripts": ["a"], "third_party": ["nccl-tests"]},
            ["/scripts", "/scripts/a"],
            [(["/dev/shm/third_party"], "/")],
            ["/scripts is there already"],
        ),
    ],
)
def test_what_the_installer_left(
    left: Mapping[str, Sequence[str]], present: Collection[str], places: list[Copying], words: list[str]
) -> None:
    assert placing(left, present) == (places, words)


@given(st.dictionaries(st.sampled_from(LEFT_BEHIND), NAMES), st.sets(st.sampled_from(LEFT_BEHIND)), NAMES)
def test_each_missing_file_is_placed_once_and_nothing_is_replaced(
    left: dict[str, set[str]], there: set[str], inner: set[str]
) -> None:
    present = {f"/{name}" for name in there} | {f"/{name}/{one}" for name in there for one in inner}
    placed: dict[str, str] = {}
    for sources, target in placing({name: sorted(names) for name, names in left.items()}, present)[0]:
        placed |= {f"{target.rstrip('/')}/{source.rpartition('/')[2]}": source for source in sources}
    assert not placed.keys() & present
    wanted = {f"/{name}/{one}" for name, names in left.items() for one in names} - present
    assert all(any(f"{path}/".startswith(f"{one}/") for one in placed) for path in wanted)
    assert all(source == LEFT_IN + target for target, source in placed.items())

"""The order of the pods: laws that hold for any places."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from agent.decide.facts import SOURCES
from agent.decide.location import Place
from agent.decide.order import Places, by_topology, shared_source
from tests.laws import examples

OVERRIDE, TOPOLOGY, PHYSICAL = SOURCES

# Few different parts, so that groups meet at every level.
places = st.lists(st.sampled_from("abc"), max_size=4).map(tuple)
indices = st.sets(st.integers(1, 60), max_size=24).map(lambda more: {0, *more})
one_source = indices.flatmap(lambda some: st.fixed_dictionaries(dict.fromkeys(some, places)))
known = st.fixed_dictionaries({}, optional=dict.fromkeys(SOURCES, places))
any_sources = indices.flatmap(lambda some: st.fixed_dictionaries(dict.fromkeys(some, known)))


def peers_at(where: dict[int, Place], source: str = TOPOLOGY) -> dict[int, Places]:
    return {index: {source: place} if place else {} for index, place in where.items()}


@given(one_source, st.sampled_from(SOURCES))
def test_groups_stay_together_at_every_level_and_are_sorted_by_the_smallest_index_in_them(
    where: dict[int, Place], source: str
) -> None:
    """Pods without a place come last by index and are counted."""
    located = {index: place + ("",) * (4 - len(place)) for index, place in where.items() if place}

    def smallest(index: int) -> list[int]:
        """The smallest index at each level, among the peers that share it."""
        place = located[index]
        return [min(other for other in located if located[other][:level] == place[:level]) for level in range(5)]

    order = by_topology(peers_at(where, source))
    known = [index for index in order.indices if index in located]
    assert known == sorted(located, key=lambda index: (*smallest(index), index))
    assert order.source == (source if located else "")
    lost = sorted(index for index, place in where.items() if not place)
    if not located:
        assert order.indices == tuple(sorted(where))
        return
    behind = [index for index in lost if index != 0]
    assert list(order.indices[len(where) - len(behind) :]) == behind
    assert [text for text in order.warnings if f"{len(lost)} pod" in text] == list(order.warnings)
    assert bool(order.warnings) == bool(lost)


@examples(50)
@given(any_sources, st.randoms(use_true_random=False))
def test_the_source_is_the_first_that_all_located_pods_have(peers: dict[int, Places], chance: random.Random) -> None:
    """The order is a permutation in which the coordinator is first, whoever answered first."""
    located = [places for places in peers.values() if any(places.values())]
    shared = [source for source in SOURCES if all(places.get(source) for places in located)]
    order = by_topology(peers)
    assert sorted(order.indices) == sorted(peers) == sorted(order.places)
    assert order.indices[0] == 0
    shuffled = list(peers.items())
    chance.shuffle(shuffled)
    assert by_topology(dict(shuffled)) == order
    if not located:
        assert order.source == ""
        assert order.indices == tuple(sorted(peers))
    elif shared:
        assert order.source == shared[0] == shared_source(located)
        for index, places in peers.items():
            assert order.places[index] == (places.get(shared[0], ()) if any(places.values()) else ())
    else:
        assert (order.source, order.indices) == ("", tuple(sorted(peers)))
        assert any("different sources" in text for text in order.warnings)


def test_sources_that_no_two_pods_share_are_named_in_the_warning() -> None:
    order = by_topology({0: {PHYSICAL: ("a",)}, 1: {TOPOLOGY: ("a",)}, 2: {PHYSICAL: ("b",)}})
    assert order.indices == (0, 1, 2)
    assert order.warnings == (
        "pods know their places from different sources (physical_host_topology on 1 of 3, physical_host on 2 of 3): "
        "ranks follow the pod index",
    )


def test_warnings_of_pods_without_a_place() -> None:
    """One pod needs none, and of many not all are named."""
    assert by_topology({0: {}, 1: {}}).warnings == ("no pod knows its place: ranks follow the pod index",)
    assert by_topology({0: {}}).warnings == ()
    where: dict[int, Place] = {0: ("a",)} | dict.fromkeys(range(1, 21), ())
    (warning,) = by_topology(peers_at(where)).warnings
    assert warning == "20 pods (1, 2, 3, 4, 5, 6, 7, 8, …) without a known place: last in rank order"

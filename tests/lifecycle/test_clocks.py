"""How far the clocks of pods are apart, as the coordinator finds out."""

from __future__ import annotations

import pytest

from agent.lifecycle.channel.peer import Peer, PeerClock
from agent.machine.api import Target
from tests.fake.world import FakeWorld
from tests.lifecycle.test_submitted import sleeping


def clocks(world: FakeWorld, pod: int) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = world.ask(pod, "clocks")["ok"]
    return found


@pytest.mark.parametrize("asked", [0, 2])
def test_each_worker_says_what_time_it_is_there(asked: int) -> None:
    world = sleeping(4)
    world.pod(1).clock, world.pod(3).clock = 2.5, -0.3
    found = clocks(world, asked)
    assert {index: round(one["offset"], 3) for index, one in found.items()} == {"1": 2.5, "2": 0.0, "3": -0.3}
    assert {round(one["trip"] / world.net.latency, 3) for one in found.values()} == {2.0}


def test_a_worker_that_is_silent_says_nothing() -> None:
    world = sleeping(3)
    world.pod(2).pause(1.0)
    assert clocks(world, 0).keys() == {"1"}


def test_an_answer_from_before_our_clock_was_set_back_is_none() -> None:
    peer = Peer(Target(1, "", "", 0, "", "", ""))
    peer.compare_clock(100.5, 90.0, 100.0)
    assert peer.clocks == []
    peer.compare_clock(100.5, 100.2, 100.0)
    assert [PeerClock(*(round(value, 3) for value in one)) for one in peer.clocks] == [PeerClock(0.2, 0.4)]

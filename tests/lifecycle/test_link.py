"""A link over channels that break anywhere: each message once, in order; and how far clocks of pods are apart."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.decide.messages import MOST_BYTES, Go, decode
from agent.errors import AgentError
from agent.lifecycle.channel.link import Link
from agent.lifecycle.channel.peer import Peer, PeerClock
from agent.machine.api import Target
from tests.fake.world import FakeWorld
from tests.lifecycle.test_submitted import sleeping

Lines = deque[bytes]


class Half:
    """One side's end of a channel: what it sends lands in the queue of the other, until it breaks."""

    def __init__(self, queue: Lines) -> None:
        self.queue = queue
        self.closed = False

    def send(self, line: bytes) -> None:
        if not self.closed:
            self.queue.append(line)

    def close(self) -> None:
        self.closed = True

    def receive(self, line: Callable[[bytes], None], ended: Callable[[str], None]) -> None:
        raise NotImplementedError("the test delivers by itself")


class Side:
    """What coordinator and worker do with a link, and nothing else."""

    def __init__(self) -> None:
        self.link = Link()
        self.inbox: Lines = deque()
        self.said: list[int] = []
        self.got: list[int] = []
        self.greeted = False

    def say(self) -> None:
        self.said.append(len(self.said))
        self.link.say({"type": "word", "n": self.said[-1]})


class Pair:
    """A coordinator and a worker. The coordinator opens channels; the worker answers its hello."""

    def __init__(self) -> None:
        self.coordinator, self.worker = Side(), Side()

    def other(self, side: Side) -> Side:
        return self.worker if side is self.coordinator else self.coordinator

    def break_channel(self) -> None:
        """What is under way is lost."""
        for side in (self.coordinator, self.worker):
            side.link.detach()
            side.inbox.clear()
            side.greeted = False

    def connect(self) -> None:
        self.break_channel()
        self.coordinator.link.attach(Half(self.worker.inbox))
        self.coordinator.link.mention({"type": "hello"})

    def deliver(self, side: Side) -> None:
        """The next line that is under way to `side`."""
        if not side.inbox:
            return
        message = decode(side.inbox.popleft())
        if message["type"] == "hello":
            self._greet(side, message)
        elif side.greeted and side.link.take(message, 0.0) and message["type"] == "word":
            side.got.append(message["n"])

    def _greet(self, side: Side, message: dict[str, object]) -> None:
        side.greeted = True
        if side is self.worker:
            side.link.attach(Half(self.coordinator.inbox))
        side.link.take(message, 0.0)
        if side is self.worker:
            side.link.mention({"type": "hello"})
        side.link.resend()

    def settle(self) -> None:
        """A last connection that holds."""
        self.connect()
        while self.coordinator.inbox or self.worker.inbox:
            self.deliver(self.worker)
            self.deliver(self.coordinator)


def beat(pair: Pair) -> None:
    pair.coordinator.link.mention({"type": "beat"})
    pair.worker.link.mention({"type": "beat"})


STEPS: dict[str, Callable[[Pair], None]] = {
    "coordinator says": lambda pair: pair.coordinator.say(),
    "worker says": lambda pair: pair.worker.say(),
    "deliver to coordinator": lambda pair: pair.deliver(pair.coordinator),
    "deliver to worker": lambda pair: pair.deliver(pair.worker),
    "beat": beat,
    "break": Pair.break_channel,
    "connect": Pair.connect,
}


def assert_in_order(pair: Pair) -> None:
    for side in (pair.coordinator, pair.worker):
        assert side.got == pair.other(side).said[: len(side.got)]


@pytest.mark.parametrize("early", [False, True])
@given(steps=st.lists(st.sampled_from(list(STEPS)), min_size=20, max_size=80))
@settings(max_examples=200)
def test_each_message_arrives_once_and_in_order(early: bool, steps: list[str]) -> None:
    """`early`: the coordinator also speaks after it has connected and before the worker has answered."""
    pair = Pair()
    for step in steps:
        waits = pair.coordinator.link.channel is not None and not pair.coordinator.greeted
        if early or step != "coordinator says" or not waits:
            STEPS[step](pair)
        assert_in_order(pair)
    pair.settle()
    assert pair.worker.got == pair.coordinator.said
    assert pair.coordinator.got == pair.worker.said


def test_what_has_arrived_is_forgotten() -> None:
    pair = Pair()
    pair.settle()
    pair.coordinator.say()
    pair.settle()
    pair.settle()
    pair.coordinator.inbox.clear()
    pair.coordinator.link.attach(Half(pair.worker.inbox))
    pair.coordinator.link.resend()
    assert not pair.worker.inbox


def test_a_new_channel_closes_the_old_one() -> None:
    link, old, new = Link(), Half(deque()), Half(deque())
    link.attach(old)
    link.attach(new)
    assert (old.closed, new.closed, link.heard) == (True, False, 0.0)
    link.detach()
    assert new.closed
    assert link.channel is None


@pytest.mark.parametrize("seen", [None, "1", [], 99])
def test_a_strange_acknowledgement_harms_nothing(seen: object) -> None:
    link = Link()
    assert link.take({"type": "beat", "seen": seen}, 3.0)
    assert link.heard == 3.0
    link.say({"type": "word"})
    half = Half(deque())
    link.attach(half)
    link.resend()
    assert decode(half.queue[0]) == {"type": "word", "seq": 1, "seen": 0}


def test_what_is_too_long_is_never_sent_and_holds_up_nothing() -> None:
    pair = Pair()
    pair.settle()
    pair.coordinator.say()
    for say in (pair.coordinator.link.say, pair.coordinator.link.mention):
        with pytest.raises(AgentError):
            say({"type": "start", "spec": "\x1b" * (MOST_BYTES // 6)})
    pair.coordinator.say()
    assert all(len(line) < MOST_BYTES for line in pair.worker.inbox)
    pair.settle()
    assert pair.worker.got == [0, 1]


def test_who_only_greets_is_heard_once() -> None:
    link = Link()
    for now, kind, heard in [
        (1.0, "hello", 1.0),
        (2.0, "hello", 1.0),
        (3.0, "hello", 1.0),
        (4.0, "beat", 4.0),
        (5.0, "hello", 5.0),
        (6.0, "hello", 5.0),
        (7.0, "word", 7.0),
    ]:
        link.take({"type": kind}, now)
        assert link.heard == heard


@pytest.mark.parametrize(
    ("heard", "stood_still", "silent"), [(10.0, 0.0, 30.0), (10.0, 25.0, 5.0), (39.0, 25.0, 0.0), (40.0, 25.0, 0.0)]
)
def test_seconds_in_which_this_agent_stood_still_are_neither_silence_nor_credit(
    heard: float, stood_still: float, silent: float
) -> None:
    link = Link()
    link.take({"type": "beat"}, heard)
    link.excuse(stood_still, 40.0)
    assert link.silent(40.0) == silent
    assert link.silent(47.0) == silent + 7


@pytest.mark.parametrize(("lost", "kept"), [(False, 1), (True, 0)])
def test_what_is_said_is_kept_for_the_next_channel_unless_the_peer_is_lost(lost: bool, kept: int) -> None:
    peer, queue = Peer(Target(1, "pod-1", "", 22, "", "", ""), lost=lost), Lines()
    peer.say(Go("run-1"))
    peer.link.attach(Half(queue))
    peer.link.resend()
    assert len(queue) == kept


# How far the clocks of pods are apart


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

"""Messages and requests that are nearly right, as another release or a broken program may say them: nobody takes it for
a bug of its own, and nobody waits for ever."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide import messages
from agent.decide.ending import JobEnd
from agent.decide.facts import Facts
from agent.decide.part_end import PartEnd
from agent.decide.pod_state import Loss, RunSummary
from agent.decide.ranks import RankEnd
from agent.decide.runspec import RunSpec
from agent.lifecycle.coordinator import Coordinator
from agent.lifecycle.worker import Worker
from tests.fake.process import Life
from tests.fake.world import FakeWorld
from tests.laws import examples

PODS = 3
LEASE = 12.0
END = JobEnd(3, "what", "where", "why")
FACTS = Facts(2, "nonce", "1", "node", "10.0.0.3", "eth0", 8, 8, {"physical_host": ("a", "b")})
OF_WORKERS = (
    messages.TellFacts(FACTS),
    messages.Inventory({"mpirun": "/mpirun"}, {"agent-started": 1.0}),
    messages.Prepared("RUN"),
    messages.Done("RUN", PartEnd(0, notes={"x": 1}, ranks={16: RankEnd(0)})),
    messages.Evidence("RUN", "it hangs"),
    messages.Ask(1, "read", {"run": "RUN", "pod": 0, "offset": 0, "most": 100, "wait": False}),
    messages.Ask(1, "submit", {"spec": {"workload": "script", "hosts": ["1"]}}),
    messages.Answer(1, {"ok": {}}),
    messages.Stopping(END),
    messages.Beat(1.0),
)
OF_COORDINATORS = (
    messages.TellPlan("eJw="),
    messages.Prepare("x-1", RunSpec("script"), (0, 1, 2)),
    messages.Go("RUN"),
    messages.Stop("RUN"),
    messages.AskEvidence("RUN"),
    messages.TellRun(RunSummary("RUN", until=3.0, code=0, what="x")),
    messages.Cluster({1: Loss("gone", 1.0)}, {1: "late"}),
    messages.Ask(1, "read", {"run": "RUN", "pod": 2, "offset": 0, "most": 100, "wait": False}),
    messages.Answer(1, {"ok": {}}),
    messages.TellResult(END, "RUN"),
)
DEEP: Any = []
for _ in range(600):
    DEEP = [DEEP]
ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    7,
    10**20,
    1e300,
    float("inf"),
    float("nan"),
    "",
    "\ud800",
    "0",
    [],
    [[]],
    {},
    {"0": []},
    DEEP,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something can be put into JSON in place of what is there."""
    if path:
        yield path
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in members:
        if name != "type":
            yield from places(one, (*path, name))


def odd(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = odd(copy[path[0]], path[1:], new)
    return copy


def nonsense(all_said: tuple[Any, ...]) -> st.SearchStrategy[messages.Message]:
    """One of these with something odd somewhere, or as it is."""
    given = [messages.message(said) for said in all_said]
    changed = [(one, path) for one in given for path in places(one)]
    odd_ones = st.builds(lambda one, new: odd(one[0], one[1], new), st.sampled_from(changed), st.sampled_from(ODD))
    return st.sampled_from(given) | odd_ones


def named(value: Any, run: str) -> Any:
    """With the run that goes on."""
    if isinstance(value, dict):
        return {name: named(one, run) for name, one in value.items()}
    return run if value == "RUN" else value


def new_world() -> FakeWorld:
    # One that only says that it ends waits for another coordinator so long.
    env = {"A4_LEASE_SECONDS": str(LEASE), "A4_PEER_TIMEOUT_SECONDS": "60"}
    return FakeWorld(PODS, "script", env, life=Life(seconds=18.0))


def running() -> FakeWorld:
    world = new_world()
    world.until_event("run-started")
    world.wait(5)
    return world


def expect_no_bug(world: FakeWorld) -> None:
    codes = world.run()
    assert 70 not in codes.values(), world.dump()
    assert world.last() < 23 + 3 * LEASE + 30, world.dump()


@examples(50)
@given(nonsense(OF_WORKERS))
def test_what_a_worker_says(said: messages.Message) -> None:
    world = running()
    world.slip_in(named(said, world.pod(0).state()["run"]["id"]), 2)
    expect_no_bug(world)


@examples(50)
@given(nonsense(OF_WORKERS))
def test_what_a_worker_says_while_the_cluster_forms(said: messages.Message) -> None:
    world = new_world()
    world.pod(1).starts = 3.0
    world.until_event("coordinator-connected", 2)
    world.slip_in(said, 2)
    expect_no_bug(world)


@pytest.mark.parametrize("index", [0, 1, 7])
def test_facts_of_another_pod(index: int) -> None:
    world = new_world()
    world.pod(1).starts = 3.0
    world.until_event("coordinator-connected", 2)
    world.slip_in(messages.message(messages.TellFacts(FACTS._replace(index=index))), 2)
    assert set(world.run().values()) == {75}, world.dump()
    assert f"facts of pod {index}" in world.pod(0).said()["why"]


@examples(50)
@given(nonsense(OF_COORDINATORS))
def test_what_a_coordinator_says(said: messages.Message) -> None:
    world = running()
    world.slip_in(named(said, world.pod(0).state()["run"]["id"]), 0, 2)
    expect_no_bug(world)


@pytest.mark.parametrize("index", [0, 2])
def test_a_request_that_is_too_deep(index: int) -> None:
    world = running()
    client = world.pod(index).agent.client()
    number = client.ask("cancel", run="x", why=DEEP)
    expect_no_bug(world)
    assert client.answers[number]["error"]["code"] in (2, 66), client.answers


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize("index", [0, 2])
@pytest.mark.parametrize("number", [*(nested(depth) for depth in (1, 600, 970, 982, 990)), b"true", b'"1"', b"1.0"])
def test_a_request_whose_number_is_none_comes_from_no_client(index: int, number: bytes) -> None:
    """It would come back in the answer, and not all that can be read can be written."""
    world = running()
    client = world.pod(index).agent.client()
    client.say(b'{"id": %s, "op": "find", "run": ""}' % number)
    world.wait(1)
    assert client.closed and not client.answers
    assert set(world.run().values()) == {0}, world.dump()


@pytest.mark.parametrize("index", [0, 2])
def test_an_answer_that_is_too_long_is_a_refusal(index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(requests: object, op: str, fields: Any, answer: Any) -> None:
        answer({"ok": ["x"] * (messages.MOST_BYTES // 4)})

    monkeypatch.setattr("agent.lifecycle.runs.requests.CoordinatorRequests.handle", handle)
    world = running()
    answered = world.ask(index, "find", run="")
    assert "ok" in answered if index == 0 else "cannot be sent" in answered["error"]["what"], answered.keys()
    assert set(world.run().values()) == {0}, world.dump()


def test_what_is_good_to_know_and_too_long_is_left_out() -> None:
    found = messages.Evidence("RUN", "it hangs", {"groups": ["x"] * (messages.MOST_BYTES // 4)})
    world = running()
    worker = world.pod(2).agent.role
    assert isinstance(worker, Worker)
    worker.coordinator.say(found)
    assert set(world.run().values()) == {0}, world.dump()
    assert "the coordinator hears less of this pod" in world.pod(2).log.getvalue()


def test_a_coordinator_of_another_epoch_is_turned_away() -> None:
    world = running()
    hello = messages.Hello(messages.CHANNEL_VERSION, "other", "1", "another epoch", 2, "")
    coordinator = world.pod(0).agent.role
    assert isinstance(coordinator, Coordinator)
    coordinator.roster.peers[2].link.mention(messages.message(hello))
    assert set(world.run().values()) == {0}, world.dump()
    assert "a coordinator of epoch another epoch for pod 2 " in world.pod(2).log.getvalue()


REQUESTS = (
    {"op": "submit", "spec": RunSpec("exec", ("x",), hosts=("1",), env={"A": "b"}).to_json()},
    {"op": "find", "run": "RUN"},
    {"op": "read", "run": "RUN", "pod": 1, "offset": 0, "most": 100, "wait": True},
    {"op": "wait", "run": "RUN"},
    {"op": "cancel", "run": "x", "hurry": True, "why": "x"},
    {"op": "release", "force": False},
    {"op": "other"},
)


@pytest.mark.parametrize("index", [0, 2])
@examples(50)
@given(data=st.data())
def test_what_a_command_asks(index: int, data: st.DataObject) -> None:
    request = data.draw(st.sampled_from(REQUESTS))
    path = data.draw(st.sampled_from([*places(request)]))
    world = running()
    asked = named(odd(request, path, data.draw(st.sampled_from(ODD))), world.pod(0).state()["run"]["id"])
    client = world.pod(index).agent.client()
    op = asked.pop("op")
    number = client.ask(op, **asked)
    expect_no_bug(world)
    assert number in client.answers or client.closed, world.dump()

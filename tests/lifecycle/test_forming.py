"""Forming the cluster, as sequences: late pods, names that change, pods that never come."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from agent.decide.keys import JobKeys
from agent.machine.api import Whereabouts
from agent.paths import HOSTFILE, HOSTFILE_ONE_PER_NODE, HOSTNAMES_ORDER, RANK_ORDER
from tests.fake.net import LATE
from tests.fake.pod import DIR
from tests.fake.world import USUAL, FakeWorld

TIMEOUT, LEASE = USUAL.peer_timeout, USUAL.lease
BACK = 5 + LEASE + 10
"""When a coordinator is back that was away for longer than a lease."""
Scene = Callable[[FakeWorld], None]
ZERO = {0: 0, 1: 0, 2: 0, 3: 0}
NOWHERE = Whereabouts({}, "no place from the metadata server: it stalls")


def test_four_pods_form_and_end() -> None:
    world = FakeWorld(4)
    assert world.run() == ZERO, world.dump()
    assert world.last() < 2
    order = [0, 2, 1, 3]  # two racks, named by the metadata server
    names = [world.pod(index).name for index in order]
    for pod in world.pods:
        files = pod.files_now
        assert files[HOSTFILE] == "".join(f"{name} slots=8\n" for name in names)
        assert files[HOSTFILE_ONE_PER_NODE] == "".join(f"{name} slots=1\n" for name in names)
        assert files[HOSTNAMES_ORDER].split() == names
        assert files[RANK_ORDER].splitlines()[1] == f"/cluster/rack-0/host-2 {names[1]}"
        assert [peer["index"] for peer in json.loads(files[DIR.plan])["peers"]] == order
        assert pod.said()["code"] == 0


def test_sixty_four_pods_form_and_end() -> None:
    world = FakeWorld(64)
    assert set(world.run().values()) == {0}
    assert world.last() < 5


def test_one_pod_needs_no_network() -> None:
    world = FakeWorld(1)
    world.pod(0).metadata_seconds = None
    world.pod(0).programs.pop("sshd")
    world.pod(0).secret = b""
    assert world.run() == {0: 0}, world.dump()
    assert world.net.lookups == []
    assert world.pod(0).files_now[HOSTFILE] == f"{world.pod(0).name} slots=8\n"


def named(world: FakeWorld, index: int, first: str, until: float) -> None:
    """Its name leads to another address at first."""
    world.net.names[world.pod(index).name] = [(0, first), (until, world.pod(index).address)]


def dns_is_down(world: FakeWorld) -> None:
    for pod in world.pods:
        named(world, pod.index, LATE, 42)


def has(world: FakeWorld, index: int = 2, **fields: Any) -> None:
    """This pod has other attributes than the others."""
    for name, value in fields.items():
        setattr(world.pod(index), name, value)


def late_with_its_name_known(world: FakeWorld) -> None:
    has(world, starts=60)
    named(world, 2, world.pod(2).address, 0)


def stranger(world: FakeWorld, until: float) -> None:
    """Another job's sshd answers at the address that the name has until then."""
    world.net.impostors["10.9.9.9"] = JobKeys(b"x" * 32, "other").host_public(2)
    named(world, 2, "10.9.9.9", until)


def attempt_before_is_still_there(world: FakeWorld) -> None:
    """The same address: the pod of the attempt before must end first."""
    world.pod(2).env["A4_EPOCH"] = "uid.9.9"
    world.at(30, world.pod(2).kill)
    world.at(31, world.pod(2).env.clear)
    world.at(31, world.pod(2).start)


def cut_off_for_a_while(world: FakeWorld, index: int, begin: float, end: float, last: float = 0.0) -> None:
    """`last`: when the last pod comes."""
    world.pod(3).starts = last
    world.at(begin, lambda: world.net.isolate(index))
    world.at(end, lambda: world.net.heal(index))


def starts_anew(world: FakeWorld, index: int, killed: float, again: float, last: float = 40) -> None:
    """Before the plan, which needs the last pod."""
    world.pod(3).starts = last
    world.at(killed, world.pod(index).kill)
    world.at(again, world.pod(index).start)


def coordinator_is_stopped_for_longer_than_a_lease(world: FakeWorld) -> None:
    world.pod(3).starts = BACK + 3
    world.at(5, lambda: world.pod(0).pause(BACK - 5))


def channel_breaks_before_the_plan(world: FakeWorld) -> None:
    world.pod(3).starts = 40
    for second in (5, 10, 15):
        world.at(second, lambda: world.net.cut(2))


SCENES: dict[str, Scene] = {
    "an old node answers under its name": partial(named, index=2, first="10.9.9.9", until=40),
    "its name appears late": partial(named, index=2, first="", until=45),
    "DNS is down": dns_is_down,
    "a worker comes late": partial(has, starts=60),
    "the coordinator comes late": partial(has, index=0, starts=60),
    "late with its name known": late_with_its_name_known,
    "a stranger first": partial(stranger, until=50),
    "the attempt before is still there": attempt_before_is_still_there,
    "slow metadata": partial(has, metadata_seconds=12, whereabouts=NOWHERE),
    "slow metadata on the coordinator": partial(has, index=0, metadata_seconds=12),
    "the network is away for a while": partial(cut_off_for_a_while, index=2, begin=0, end=50),
    "it starts anew before the plan": partial(starts_anew, index=2, killed=10, again=15),
    "it is away when the last pod comes": partial(starts_anew, index=2, killed=10, again=50),
    "the coordinator starts anew before the plan": partial(starts_anew, index=0, killed=10, again=15),
    "the coordinator is away for a lease": partial(cut_off_for_a_while, index=0, begin=5, end=BACK, last=BACK + 3),
    "the coordinator is stopped for a lease": coordinator_is_stopped_for_longer_than_a_lease,
    "the coordinator is replaced after a lease": partial(starts_anew, index=0, killed=5, again=BACK, last=BACK + 3),
    "its channel breaks before the plan": channel_breaks_before_the_plan,
    "slow round trips": lambda world: setattr(world.net, "latency", 2.0),
}


@pytest.mark.parametrize("scene", SCENES)
def test_what_comes_right_in_the_end_is_waited_for(scene: str) -> None:
    world = FakeWorld(4)
    SCENES[scene](world)
    world.wait(BACK + 10)  # for those that come again
    assert world.run() == ZERO, world.dump()
    assert world.last() < BACK + 30
    assert [pod.events().count("run-started") for pod in world.pods] == [1, 1, 1, 1]


def test_a_pod_that_starts_anew_before_the_plan_is_planned_as_it_is_now() -> None:
    """What its first agent said must not count: the token that its ranks are known by is a new one, too."""
    world = FakeWorld(4)
    starts_anew(world, 2, killed=10, again=15)
    elsewhere = Whereabouts({"physical_host": "/cluster/rack-9/host-9"})
    world.at(12, lambda: setattr(world.pod(2), "whereabouts", elsewhere))
    assert world.run() == ZERO, world.dump()
    assert f"/cluster/rack-9/host-9 {world.pod(2).name}" in world.pod(0).files_now[RANK_ORDER].splitlines()


def never(world: FakeWorld, address: str = "") -> None:
    world.pod(2).starts = None
    if address:
        named(world, 2, address, 10_000)


def no_route(world: FakeWorld) -> None:
    world.net.unreachable.add("10.9.9.9")
    never(world, "10.9.9.9")


def key_taken_out(world: FakeWorld) -> None:
    other = {f"{DIR.ssh}/authorized_keys": "ssh-ed25519 AAAA nobody\n"}
    world.at(0.001, lambda: world.pod(2).agent.files.update(other))


def no_agent(world: FakeWorld) -> None:
    """SSH works there, but no agent takes the channel."""
    world.at(0.001, lambda: world.pod(2).agent.files.__delitem__(f"{DIR.path}/control-channel.sh"))


@pytest.mark.parametrize(
    ("scene", "code", "reason", "own"),
    [
        (never, 69, "DNS does not know its name yet", None),
        (partial(never, address="10.0.0.2"), 77, "host key", None),  # that of pod 1
        (partial(never, address="10.9.9.9"), 69, "does not answer", None),
        (no_route, 69, "No route to host", None),
        (partial(has, programs={}), 69, "port 2222 at 10.0.0.3", 66),  # its own agent has ended at once
        (partial(stranger, until=10_000), 77, "host key", 69),
        (partial(has, secret=b"another secret, also of 32 bytes"), 77, "host key", 69),
        (partial(has, env={"A4_EPOCH": "uid.1.0"}), 77, "host key", 69),
        (key_taken_out, 77, "refuses the job's SSH key", 69),
        (no_agent, 69, "no a4-agent", 69),
        (lambda world: world.net.isolate(2), 69, "does not answer", 69),
    ],
)
def test_a_pod_that_does_not_come_is_named_at_the_deadline(
    scene: Scene, code: int, reason: str, own: int | None
) -> None:
    world = FakeWorld(4)
    scene(world)
    codes = world.run()
    assert codes == {0: code, 1: code, 3: code} | ({} if own is None else {2: own}), world.dump()
    assert TIMEOUT <= world.last(world.others(2)) < TIMEOUT + 10
    for pod in world.others(2):
        said = pod.said()
        assert said["code"] == code
        assert world.pod(2).name in said["why"]
        assert reason in said["why"]
        assert world.pod(1).name not in said["why"]


def test_workers_give_up_on_a_coordinator_that_never_comes() -> None:
    world = FakeWorld(4)
    world.pod(0).starts = None
    assert world.run() == {1: 69, 2: 69, 3: 69}, world.dump()
    assert TIMEOUT <= world.last() < TIMEOUT + 5
    assert "the coordinator did not connect" in world.pod(2).said()["what"]


@pytest.mark.parametrize("second", [10.0, TIMEOUT - 5])
def test_workers_give_up_on_a_coordinator_that_came_and_went(second: float) -> None:
    """At the same moment as on one that never came, but not before it was silent for a lease."""
    world = FakeWorld(4)
    world.pod(3).starts = None
    world.at(second, world.pod(0).kill)
    assert world.run() == {0: 137, 1: 69, 2: 69}, world.dump()
    earliest = max(TIMEOUT, second + LEASE)
    assert earliest - 5 <= world.last(world.pods[1:3]) < earliest + 5
    said = world.pod(1).said()
    assert "the coordinator has been silent for" in said["what"], said
    assert f"look at pod 0, {world.pod(0).name}" in said["why"], said

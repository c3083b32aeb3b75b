"""Forming the cluster, as sequences: late pods, names that change, pods that never come."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from agent.decide.keys import JobKeys
from agent.machine.api import Whereabouts
from agent.paths import HOSTFILE, HOSTFILE_ONE_PER_NODE, HOSTNAMES_ORDER, RANK_ORDER
from tests.fake.net import LATE, public_of
from tests.fake.pod import DIR, FakePod
from tests.fake.world import FakeWorld

TIMEOUT, LEASE = 600.0, 30.0
Scene = Callable[[FakeWorld], None]
ZERO = {0: 0, 1: 0, 2: 0, 3: 0}


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


def moves(world: FakeWorld) -> None:
    """An old node still answers under the name, with nobody listening."""
    world.net.names[world.pod(2).name] = [(0, "10.9.9.9"), (40, world.pod(2).address)]


def name_appears(world: FakeWorld) -> None:
    world.net.names[world.pod(2).name] = [(0, ""), (45, world.pod(2).address)]


def dns_is_down(world: FakeWorld) -> None:
    for pod in world.pods:
        world.net.names[pod.name] = [(0, LATE), (42, pod.address)]


def comes_late(world: FakeWorld) -> None:
    world.pod(2).starts = 60


def comes_late_with_its_name_known(world: FakeWorld) -> None:
    world.pod(2).starts = 60
    world.net.names[world.pod(2).name] = [(0, world.pod(2).address)]


def coordinator_comes_late(world: FakeWorld) -> None:
    world.pod(0).starts = 60


def stranger_first(world: FakeWorld) -> None:
    """Another job's sshd answers at the address that the name had before."""
    world.net.impostors["10.9.9.9"] = JobKeys(b"x" * 32, "other").host_public(2)
    world.net.names[world.pod(2).name] = [(0, "10.9.9.9"), (50, world.pod(2).address)]


def attempt_before_is_still_there(world: FakeWorld) -> None:
    """The same address: the pod of the attempt before must end first."""
    world.pod(2).env["A4_EPOCH"] = "uid.9.9"
    world.at(30, world.pod(2).kill)
    world.at(31, world.pod(2).env.clear)
    world.at(31, world.pod(2).start)


def slow_metadata(world: FakeWorld) -> None:
    world.pod(2).metadata_seconds = 12
    world.pod(2).whereabouts = Whereabouts({}, "no place from the metadata server: it stalls")


def slow_metadata_on_the_coordinator(world: FakeWorld) -> None:
    world.pod(0).metadata_seconds = 12


def network_away_for_a_while(world: FakeWorld) -> None:
    world.net.isolate(2)
    world.at(50, lambda: world.net.heal(2))


def restarts_before_the_plan(world: FakeWorld) -> None:
    world.pod(3).starts = 40
    world.at(10, world.pod(2).kill)
    world.at(15, world.pod(2).start)


def away_when_the_last_pod_comes(world: FakeWorld) -> None:
    world.pod(3).starts = 40
    world.at(10, world.pod(2).kill)
    world.at(50, world.pod(2).start)


def coordinator_restarts_before_the_plan(world: FakeWorld) -> None:
    world.pod(3).starts = 40
    world.at(10, world.pod(0).kill)
    world.at(15, world.pod(0).start)


def coordinator_is_away_for_longer_than_a_lease(world: FakeWorld) -> None:
    world.pod(3).starts = 48
    world.at(5, lambda: world.net.isolate(0))
    world.at(45, lambda: world.net.heal(0))


def coordinator_is_stopped_for_longer_than_a_lease(world: FakeWorld) -> None:
    world.pod(3).starts = 48
    world.at(5, lambda: world.pod(0).pause(40))


def coordinator_is_replaced_after_a_lease(world: FakeWorld) -> None:
    world.pod(3).starts = 48
    world.at(5, world.pod(0).kill)
    world.at(45, world.pod(0).start)


def channel_breaks_before_the_plan(world: FakeWorld) -> None:
    world.pod(3).starts = 40
    for second in (5, 10, 15):
        world.at(second, lambda: world.net.cut(2))


def slow_round_trips(world: FakeWorld) -> None:
    world.net.latency = 2.0


SCENES = (
    moves,
    name_appears,
    dns_is_down,
    comes_late,
    comes_late_with_its_name_known,
    coordinator_comes_late,
    stranger_first,
    attempt_before_is_still_there,
    slow_metadata,
    slow_metadata_on_the_coordinator,
    network_away_for_a_while,
    restarts_before_the_plan,
    away_when_the_last_pod_comes,
    coordinator_restarts_before_the_plan,
    coordinator_is_away_for_longer_than_a_lease,
    coordinator_is_stopped_for_longer_than_a_lease,
    coordinator_is_replaced_after_a_lease,
    channel_breaks_before_the_plan,
    slow_round_trips,
)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_what_comes_right_in_the_end_is_waited_for(scene: Scene) -> None:
    world = FakeWorld(4)
    scene(world)
    world.wait(55)  # for those that come again
    assert world.run() == ZERO, world.dump()
    assert world.last() < 75
    assert [pod.events().count("run-started") for pod in world.pods] == [1, 1, 1, 1]


def test_a_pod_that_starts_anew_before_the_plan_is_planned_as_it_is_now() -> None:
    """What its first agent said must not count: the token that its ranks are known by is a new one, too."""
    world = FakeWorld(4)
    restarts_before_the_plan(world)
    elsewhere = Whereabouts({"physical_host": "/cluster/rack-9/host-9"})

    def moves_on() -> None:
        world.pod(2).whereabouts = elsewhere

    world.at(12, moves_on)
    assert world.run() == ZERO, world.dump()
    assert f"/cluster/rack-9/host-9 {world.pod(2).name}" in world.pod(0).files_now[RANK_ORDER].splitlines()


def never(world: FakeWorld) -> FakePod:
    world.pod(2).starts = None
    return world.pod(2)


def never_listens(world: FakeWorld) -> FakePod:
    world.net.names[world.pod(2).name] = [(0, world.pod(1).address)]
    world.pod(2).starts = None
    return world.pod(2)


def nobody_at_its_address(world: FakeWorld) -> FakePod:
    never(world)
    world.net.names[world.pod(2).name] = [(0, "10.9.9.9")]
    return world.pod(2)


def no_route(world: FakeWorld) -> FakePod:
    world.net.unreachable.add("10.9.9.9")
    return nobody_at_its_address(world)


def refused(world: FakeWorld) -> FakePod:
    """It is there, but no sshd listens: its own agent ended at once."""
    world.pod(2).programs.pop("sshd")
    return world.pod(2)


def stranger(world: FakeWorld) -> FakePod:
    world.net.impostors["10.9.9.9"] = JobKeys(b"x" * 32, "other").host_public(2)
    return nobody_at_its_address(world)


def other_secret(world: FakeWorld) -> FakePod:
    world.pod(2).secret = b"another secret, also of 32 bytes"
    return world.pod(2)


def other_epoch(world: FakeWorld) -> FakePod:
    world.pod(2).env["A4_EPOCH"] = "uid.1.0"
    return world.pod(2)


def key_taken_out(world: FakeWorld) -> FakePod:
    other = {f"{DIR.ssh}/authorized_keys": "ssh-ed25519 AAAA nobody\n"}
    world.at(0.001, lambda: world.pod(2).agent.files.update(other))
    return world.pod(2)


def no_agent(world: FakeWorld) -> FakePod:
    """SSH works there, but no agent takes the channel."""

    script = f"{DIR.path}/control-channel.sh"
    world.at(0.001, lambda: world.pod(2).agent.files.__delitem__(script))
    return world.pod(2)


def cut_off(world: FakeWorld) -> FakePod:
    world.net.isolate(2)
    return world.pod(2)


@pytest.mark.parametrize(
    ("scene", "code", "reason", "own"),
    [
        (never, 69, "DNS does not know its name yet", None),
        (never_listens, 77, "host key", None),
        (nobody_at_its_address, 69, "does not answer", None),
        (no_route, 69, "No route to host", None),
        (refused, 69, "port 2222 at 10.0.0.3", 66),
        (stranger, 77, "host key", 69),
        (other_secret, 77, "host key", 69),
        (other_epoch, 77, "host key", 69),
        (key_taken_out, 77, "refuses the job's SSH key", 69),
        (no_agent, 69, "no a4-agent", 69),
        (cut_off, 69, "does not answer", 69),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_pod_that_does_not_come_is_named_at_the_deadline(
    scene: Callable[[FakeWorld], FakePod], code: int, reason: str, own: int | None
) -> None:
    world = FakeWorld(4)
    missing = scene(world)
    codes = world.run()
    expected: dict[int, int | None] = {0: code, 1: code, 3: code}
    if missing.starts is not None:
        expected[2] = own
    assert codes == expected, world.dump()
    assert TIMEOUT <= world.last(world.others(2)) < TIMEOUT + 10
    for pod in world.others(2):
        said = pod.said()
        assert said["code"] == code
        assert missing.name in said["why"]
        assert reason in said["why"]
        assert world.pod(1).name not in said["why"]


def test_workers_give_up_on_a_coordinator_that_never_comes() -> None:
    world = FakeWorld(4)
    world.pod(0).starts = None
    assert world.run() == {1: 69, 2: 69, 3: 69}, world.dump()
    assert TIMEOUT <= world.last() < TIMEOUT + 5
    assert "the coordinator did not come" in world.pod(2).said()["what"]


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


def test_the_fake_refuses_by_the_real_keys() -> None:
    """What the other tests rest on: keys in a pod's files are those of its secret, epoch and index."""
    world = FakeWorld(2)
    world.run()
    pod = world.pod(1)
    assert public_of(pod.files_now[f"{DIR.ssh}/host_key"]) == JobKeys(pod.secret, "uid.0.0").host_public(1)

"""Laws that hold for whatever goes wrong, when and wherever it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from tests.fake.clock import Action
from tests.fake.pod import KILLED
from tests.fake.process import Life
from tests.fake.world import USUAL, FakeWorld
from tests.laws import examples

PODS = 4
TIMEOUT, LEASE, GRACE = 60.0, 12.0, USUAL.grace
LONGEST = TIMEOUT + 40 + LEASE + 3 * GRACE
"""Deadline, then a run, a lease for those who are lost, and the end of each pod."""


@dataclass(frozen=True)
class Fault:
    """What happens to one pod, and when."""

    kind: str
    pod: int
    second: float
    lasts: float = 0.0

    def apply(self, world: FakeWorld) -> None:
        pod, net, again = world.pod(self.pod), world.net, self.second + self.lasts
        if self.kind == "late":
            pod.starts = self.second
        happens: dict[str, Sequence[tuple[float, Action]]] = {
            "kill": [(self.second, pod.kill)],
            "term": [(self.second, pod.signal)],
            "restart": [(self.second, pod.kill), (again, pod.start)],
            "agent": [(self.second, pod.kill_agent)],
            "pause": [(self.second, lambda: pod.pause(self.lasts))],
            "cut": [(self.second, lambda: net.cut(self.pod))],
            "isolate": [(self.second, lambda: net.isolate(self.pod))],
            "silence": [(self.second, lambda: net.isolate(self.pod)), (again, lambda: net.heal(self.pod))],
        }
        for second, action in happens.get(self.kind, ()):
            world.at(second, action)

    @property
    def excuses(self) -> bool:
        """May this pod end with a code of its own because of it?"""
        return self.kind not in ("late", "cut")


KINDS = ("kill", "term", "late", "restart", "cut", "isolate", "silence", "pause", "agent")
MOMENTS = st.one_of(
    st.floats(0, 40).map(lambda second: round(second, 2)),
    st.floats(0, 0.3).map(lambda second: round(second, 4)),  # while forming
    st.floats(19.99, 20.2).map(lambda second: round(second, 4)),  # while ending
)
FAULTS = st.builds(Fault, st.sampled_from(KINDS), st.integers(0, PODS - 1), MOMENTS, st.integers(1, 30).map(float))
LIVES = st.builds(
    Life,
    st.sampled_from([0, 0, 0, 7, -9]),
    st.sampled_from([20.0, 20.0, 20.001, 5.0, 30.0]),
    st.sampled_from([0.1, 5.0, None]),
)


def make_world(lives: list[Life], faults: list[Fault], seed: int, sleep: bool = False) -> FakeWorld:
    env = {"A4_PEER_TIMEOUT_SECONDS": str(TIMEOUT), "A4_LEASE_SECONDS": str(LEASE)}
    world = FakeWorld(PODS, "script", env | ({"SLEEP_INFINITY": "true"} if sleep else {}), seed)
    for pod, life in zip(world.pods, lives, strict=True):
        pod.life = life
    for fault in faults:
        fault.apply(world)
    return world


@examples(60)
@given(st.lists(LIVES, min_size=PODS, max_size=PODS), st.lists(FAULTS, max_size=3), st.integers(0, 9))
def test_every_pod_ends_and_those_left_alone_agree(lives: list[Life], faults: list[Fault], seed: int) -> None:
    world = make_world(lives, faults, seed)
    world.run(LONGEST)
    world.wait(LONGEST - world.seconds)  # for restarts that come later
    codes = {pod.index: pod.code for pod in world.pods}
    assert None not in codes.values(), world.dump()
    touched = {fault.pod for fault in faults if fault.excuses}
    # A coordinator that goes before it has met a worker leaves that one to its own deadline.
    alone = {pod.index for pod in world.pods if pod.code == 69 and pod.index and not pod.has("coordinator-connected")}
    calm = {code for index, code in codes.items() if index not in touched | alone}
    if {fault.kind for fault in faults if fault.pod == 0} <= {"late", "cut", "term"}:
        assert calm <= {codes[0]}, f"{faults}\n{world.dump()}"


@examples(60)
@given(
    st.integers(0, PODS - 1),
    st.floats(0.5, 19.9),
    st.sampled_from(["kill", "isolate", "agent"]),
    st.lists(st.tuples(st.integers(0, PODS - 1), st.floats(0.002, LEASE)), max_size=3),
    st.integers(0, 9),
)
def test_a_run_that_loses_a_pod_ends_75_whatever_its_other_processes_do(
    index: int, second: float, kind: str, fails: list[tuple[int, float]], seed: int
) -> None:
    world = make_world([Life(0, 20)] * PODS, [Fault(kind, index, second)], seed)
    for pod, after in fails:
        if pod != index:
            world.at(second + after, lambda pod=pod: world.pod(pod).agent.children[-1].die(1))  # type: ignore[misc]
    codes = world.run(LONGEST)
    expected = dict.fromkeys(range(PODS), 75) | ({index: KILLED} if kind != "isolate" else {})
    assert codes == expected, world.dump()
    assert world.last() < second + LEASE + 15, world.dump()


@examples(25)
@given(
    st.lists(st.tuples(st.integers(0, PODS - 1), st.floats(0.15, 45)), max_size=6),
    st.lists(st.sampled_from([0, 0, 0, 3]), min_size=PODS, max_size=PODS),
    st.integers(0, 9),
)
def test_broken_channels_change_nothing(cuts: list[tuple[int, float]], codes: list[int], seed: int) -> None:
    lives = [Life(code, 20.0 + index) for index, code in enumerate(codes)]
    world = make_world(lives, [Fault("cut", index, second) for index, second in cuts], seed)
    assert set(world.run(LONGEST).values()) == {max(codes)}, world.dump()
    for pod in world.pods:
        assert len(pod.workloads()) == 1
        assert pod.events().count("result-known") == 1


@examples(10)
@given(
    st.sampled_from(["script", "collectives"]),
    st.lists(
        st.builds(
            Life,
            st.sampled_from([0, 0, 7]),
            st.sampled_from([5.0, 20.0]),
            output=st.builds(
                lambda byte, length: byte * length,
                st.sampled_from([b"\0", b"\x1b", b"\xff", b"\n\0\xff\x1b", b"\xf0\x9f"]),
                st.sampled_from([100, 65537, 1_400_000]),
            ),
        ),
        min_size=PODS,
        max_size=PODS,
    ),
    st.integers(0, 9),
)
def test_what_programs_print_changes_nothing(workload: str, lives: list[Life], seed: int) -> None:
    """As JSON, a byte that is no text takes six."""
    silent = make_world([replace(life, output=b"") for life in lives], [], seed)
    loud = make_world(lives, [], seed)
    silent.workload = loud.workload = workload
    assert loud.run(LONGEST) == silent.run(LONGEST), loud.dump()
    assert loud.last() < silent.last() + LEASE / 2, loud.dump()


@examples(25)
@given(st.permutations(range(PODS)), st.floats(0.2, 60), st.lists(st.floats(0, 0.3), min_size=PODS, max_size=PODS))
def test_a_deleted_job_ends_143_everywhere(order: list[int], second: float, gaps: list[float]) -> None:
    world = make_world([Life(0, None)] * PODS, [], 0)
    for index in order:
        world.at(second, world.pod(index).signal)
        second += gaps[index]
    assert set(world.run(LONGEST).values()) == {143}, world.dump()
    assert world.last() < second + GRACE - 3, world.dump()


@examples(30)
@given(st.lists(LIVES, min_size=PODS, max_size=PODS), st.lists(FAULTS, max_size=2), st.integers(0, 9))
def test_a_cluster_that_sleeps_ends_when_it_is_told(lives: list[Life], faults: list[Fault], seed: int) -> None:
    world = make_world(lives, faults, seed, sleep=True)
    world.wait(LONGEST)
    told = world.seconds
    for pod in world.pods:
        pod.signal()
    codes = world.run(told + GRACE)
    assert None not in codes.values(), world.dump()
    assert world.last() < told + GRACE - 3, world.dump()

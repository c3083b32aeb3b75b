"""Laws that hold for whatever goes wrong, when and wherever it does."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import example, given
from hypothesis import strategies as st

from tests.fake.clock import Action
from tests.fake.pod import KILLED, FakePod
from tests.fake.process import FOREVER, STUBBORN, Life
from tests.fake.storage import FakeClient
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


TURNS = (0.13, 0.1305, 0.131, 0.132, 0.14, 4.9, 5.0, 19.9, 20.0, 20.2, 21.5, 22.16, 23.15, 23.16, 23.17)
"""When something is under way."""
AWAY = st.builds(
    Fault,
    st.sampled_from(["silence", "pause"]),
    st.integers(0, PODS - 1),
    st.floats(0.15, 25),
    st.floats(0.1, LEASE - 5),
)


@examples(30)
@given(
    st.lists(st.tuples(st.integers(0, PODS - 1), st.floats(0.15, 45)), max_size=6),
    st.lists(AWAY, max_size=1),
    st.lists(st.sampled_from([0, 0, 0, 3]), min_size=PODS, max_size=PODS),
    st.integers(0, 9),
)
@example([(0, second) for second in TURNS], [], [0] * PODS, 0)
@example([(2, second) for second in TURNS], [], [0] * PODS, 0)
@example([], [Fault("silence", 2, 15, LEASE - 5)], [0, 0, 3, 0], 0)
@example([], [Fault("silence", 0, 15, LEASE - 5)], [0, 0, 3, 0], 0)
@example([], [Fault("pause", 0, 10, LEASE - 5)], [0] * PODS, 0)
def test_broken_channels_and_a_pod_that_is_away_for_less_than_a_lease_change_nothing(
    cuts: list[tuple[int, float]], away: list[Fault], codes: list[int], seed: int
) -> None:
    lives = [Life(code, 20.0 + index) for index, code in enumerate(codes)]
    world = make_world(lives, [*away, *(Fault("cut", index, second) for index, second in cuts)], seed)
    assert set(world.run(LONGEST).values()) == {max(codes)}, world.dump()
    for pod in world.pods:
        assert len(pod.workloads()) == 1
        assert pod.events().count("run-started") == pod.events().count("result-known") == 1


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


WITHOUT_END = [FOREVER, STUBBORN, Life(0, None, 5, term_status=3), Life(0, None, 5, term_status=0)]


@examples(40)
@given(
    st.permutations(range(PODS)),
    st.floats(0.2, 58),  # then the pod that is waited for is given up
    st.lists(st.floats(0, 0.3), min_size=PODS, max_size=PODS),
    st.lists(st.sampled_from(WITHOUT_END), min_size=PODS, max_size=PODS),
    st.booleans(),
    st.just(GRACE),
)
@example([2, 1, 0, 3], 20, [0.5, 0.5, 0, 0], [FOREVER] * PODS, False, GRACE)
@example([2, 1, 0, 3], 20, [0.4, 0.4, 0, 0], [FOREVER] * PODS, True, GRACE)
@example([3, 2, 1, 0], 5, [0.0] * PODS, [STUBBORN] * PODS, False, 10.0)
@example([3, 2, 1, 0], 5, [0.3] * PODS, [STUBBORN] * PODS, False, GRACE)
def test_a_deleted_job_ends_143_everywhere(
    order: list[int], second: float, gaps: list[float], lives: list[Life], lacks_one: bool, grace: float
) -> None:
    """During the run, or while a pod is waited for."""
    world = make_world(lives, [], 0)
    world.env["A4_GRACE_SECONDS"] = str(grace)
    began = second
    if lacks_one:
        world.pod(3).starts = None
    for index in order:
        world.at(second, world.pod(index).signal)
        second += gaps[index]
    assert set(world.run(LONGEST).values()) == {143}, world.dump()
    assert world.last() < began + grace - 3, world.dump()


@examples(30)
@given(st.lists(LIVES, min_size=PODS, max_size=PODS), st.lists(FAULTS, max_size=2), st.integers(0, 9))
def test_a_cluster_that_sleeps_ends_when_it_is_told(lives: list[Life], faults: list[Fault], seed: int) -> None:
    world = make_world(lives, faults, seed, sleep=True)
    world.wait(LONGEST)
    told, known = world.seconds, world.pod(0).said().get("code")
    world.signal()
    codes = world.run(told + GRACE)
    assert None not in codes.values(), world.dump()
    assert faults or set(codes.values()) == {known or 143} == {pod.said()["code"] for pod in world.pods}, world.dump()
    assert world.last() < told + GRACE - 3, world.dump()


# Runs submitted to a sleeping cluster


BEGIN = 10.0
"""When the cluster sleeps for sure."""
RUN_FAULTS = st.builds(
    Fault,
    st.sampled_from([kind for kind in KINDS if kind != "late"]),
    st.integers(0, PODS - 1),
    st.floats(BEGIN, BEGIN + 40).map(lambda second: round(second, 2)),
    st.integers(1, 30).map(float),
)
RUN_LIVES = st.builds(Life, st.sampled_from([0, 0, 7]), st.sampled_from([5.0, 20.0]), st.sampled_from([0.1, 5.0, None]))
WORKLOADS = st.sampled_from(["script", "script", "exec", "mpirun", "torchrun", "none"])
LONGEST_RUN = 20 + 20 + LEASE + GRACE
"""Inventories, the process, a lease, and the end of what must be ended."""


class Caller:
    """A command in one pod: submits at some second, then waits for the end."""

    def __init__(self, world: FakeWorld, pod: FakePod, second: float, workload: str) -> None:
        self.world, self.pod, self.workload = world, pod, workload
        self.client: FakeClient | None = None
        self.run_id = ""
        self.refused = False
        world.at(second, self._submit)

    def _submit(self) -> None:
        if self.pod.living and not self.pod.agent.gone:
            self.client = self.pod.agent.client()
            self.client.ask("submit", spec={"workload": self.workload, "args": ["x"], "by": "a test"})
            self.world.clock.after(0.5, self._look)

    def _look(self) -> None:
        assert self.client is not None
        answer = self.client.answers.get(1)
        if answer is None:
            self.world.clock.after(0.5, self._look)
        elif "error" in answer:
            self.refused = True
        else:
            self.run_id = answer["ok"]["run"]
            self.client.ask("wait", run=self.run_id)

    @property
    def told(self) -> bool:
        """It has heard how its run ended, or knows that it must not wait: its agent has gone."""
        gone = not self.pod.living or self.pod.agent.gone or self.pod.agent is not getattr(self.client, "machine", None)
        return gone or self.refused or 2 in self.client.answers  # type: ignore[union-attr]


def asleep(faults: list[Fault], lives: list[Life], seed: int) -> FakeWorld:
    env = {"SLEEP_INFINITY": "true", "A4_LEASE_SECONDS": str(LEASE), "A4_PEER_TIMEOUT_SECONDS": "60"}
    world = FakeWorld(PODS, "none", env, seed)
    for pod, life in zip(world.pods, lives, strict=True):
        pod.life = life
    for fault in faults:
        fault.apply(world)
    world.wait(BEGIN - 1)
    assert world.asleep(), world.dump()
    return world


@examples(50)
@given(
    st.lists(RUN_FAULTS, max_size=3),
    st.lists(RUN_LIVES, min_size=PODS, max_size=PODS),
    st.lists(st.tuples(st.integers(0, PODS - 1), st.floats(BEGIN, BEGIN + 40), WORKLOADS), min_size=1, max_size=4),
    st.integers(0, 9),
)
def test_whoever_submits_hears_the_end_and_nothing_stays(
    faults: list[Fault], lives: list[Life], calls: list[tuple[int, float, str]], seed: int
) -> None:
    world = asleep(faults, lives, seed)
    callers = [Caller(world, world.pod(index), second, workload) for index, second, workload in calls]
    world.wait(45 + LONGEST_RUN + 2 * LEASE)
    assert all(caller.told for caller in callers), world.dump()
    for pod in world.pods:
        if pod.living and not pod.agent.paused:
            left = [
                child for child in pod.agent.children if child.launch.argv[0] != "/usr/sbin/sshd" and not child.over
            ]
            assert not left, f"pod {pod.index} still runs {left[0].launch.argv}\n{world.dump()}"
    told = world.seconds
    world.signal()
    world.run(told + 2 * GRACE)


@examples(25)
@example([(1, 35.0)], 0, 0, 0)  # just before the cluster is told to end
@given(
    st.lists(st.tuples(st.integers(1, PODS - 1), st.floats(BEGIN, BEGIN + 30)), max_size=5),
    st.sampled_from([0, 7]),
    st.integers(0, PODS - 1),
    st.integers(0, 9),
)
def test_broken_channels_change_no_run(cuts: list[tuple[int, float]], code: int, index: int, seed: int) -> None:
    lives = [Life(code if pod == 2 else 0, 20.0) for pod in range(PODS)]
    world = asleep([Fault("cut", pod, second) for pod, second in cuts], lives, seed)
    world.wait(1)
    told = world.ask(index, "wait", run=world.submit(index, "script"))["ok"]
    assert told["end"]["code"] == code, world.dump()
    world.wait(5)
    assert world.asleep(), world.dump()
    world.pod(0).signal()
    assert set(world.run().values()) == {143}, "a 0 would be complete to Kubernetes"


@examples(20)
@given(st.lists(st.tuples(st.integers(0, PODS - 1), st.floats(BEGIN, BEGIN + 20)), min_size=2, max_size=6))
def test_one_run_at_a_time(calls: list[tuple[int, float]]) -> None:
    world = asleep([], [Life(0, 8.0)] * PODS, 0)
    callers = [Caller(world, world.pod(index), second, "script") for index, second in calls]
    world.wait(60)
    assert any(caller.run_id for caller in callers)
    for pod in world.pods:
        scripts = [child for child in pod.agent.children if child.launch.argv[0] == "bash"]
        assert len(scripts) == sum(bool(caller.run_id) for caller in callers)
        runs = sorted((run["since"], run["until"]) for run in pod.state()["runs"])
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(runs))

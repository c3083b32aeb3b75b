"""Laws of runs submitted to a sleeping cluster, for whatever goes wrong meanwhile."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tests.fake.pod import FakePod
from tests.fake.process import Life
from tests.fake.storage import FakeClient
from tests.fake.world import FakeWorld
from tests.laws import examples
from tests.lifecycle.test_random import GRACE, LEASE, PODS, Fault

BEGIN = 10.0
"""When the cluster sleeps for sure."""
KINDS = ("kill", "term", "restart", "cut", "isolate", "silence", "pause", "agent")
FAULTS = st.builds(
    Fault,
    st.sampled_from(KINDS),
    st.integers(0, PODS - 1),
    st.floats(BEGIN, BEGIN + 40).map(lambda second: round(second, 2)),
    st.integers(1, 30).map(float),
)
LIVES = st.builds(Life, st.sampled_from([0, 0, 7]), st.sampled_from([5.0, 20.0]), st.sampled_from([0.1, 5.0, None]))
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


def sleeping(faults: list[Fault], lives: list[Life], seed: int) -> FakeWorld:
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
    st.lists(FAULTS, max_size=3),
    st.lists(LIVES, min_size=PODS, max_size=PODS),
    st.lists(st.tuples(st.integers(0, PODS - 1), st.floats(BEGIN, BEGIN + 40), WORKLOADS), min_size=1, max_size=4),
    st.integers(0, 9),
)
def test_whoever_submits_hears_the_end_and_nothing_stays(
    faults: list[Fault], lives: list[Life], calls: list[tuple[int, float, str]], seed: int
) -> None:
    world = sleeping(faults, lives, seed)
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
    for pod in world.pods:
        pod.signal()
    world.run(told + 2 * GRACE)


@examples(25)
@given(
    st.lists(st.tuples(st.integers(1, PODS - 1), st.floats(BEGIN, BEGIN + 30)), max_size=5),
    st.sampled_from([0, 7]),
    st.integers(0, PODS - 1),
    st.integers(0, 9),
)
def test_broken_channels_change_no_run(cuts: list[tuple[int, float]], code: int, index: int, seed: int) -> None:
    lives = [Life(code if pod == 2 else 0, 20.0) for pod in range(PODS)]
    world = sleeping([Fault("cut", pod, second) for pod, second in cuts], lives, seed)
    world.wait(1)
    told = world.ask(index, "wait", run=world.submit(index, "script"))["ok"]
    assert told["end"]["code"] == code, world.dump()
    world.wait(5)
    assert world.asleep(), world.dump()


@examples(20)
@given(st.lists(st.tuples(st.integers(0, PODS - 1), st.floats(BEGIN, BEGIN + 20)), min_size=2, max_size=6))
def test_one_run_at_a_time(calls: list[tuple[int, float]]) -> None:
    world = sleeping([], [Life(0, 8.0)] * PODS, 0)
    callers = [Caller(world, world.pod(index), second, "script") for index, second in calls]
    world.wait(60)
    assert any(caller.run_id for caller in callers)
    for pod in world.pods:
        scripts = [child for child in pod.agent.children if child.launch.argv[0] == "bash"]
        assert len(scripts) == sum(bool(caller.run_id) for caller in callers)
        runs = sorted((run["since"], run["until"]) for run in pod.state()["runs"])
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(runs))

"""Lives: runs that start again on the same cluster after a rank or a pod is lost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from signal import SIGKILL, SIGSEGV, SIGTERM

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fake.pod import COUNTED, KILLED
from tests.fake.process import FOREVER, FakeChild, Life
from tests.fake.world import FakeWorld, all_are, first_run
from tests.laws import examples
from tests.lifecycle.test_health import DOWN
from tests.lifecycle.test_results import REPORT, result
from tests.lifecycle.test_submitted import ends, printed, sleeping

LIVES = {"A4_LIVES": "2"}
RANK_KILLED = Life(status=-SIGKILL, seconds=3.0)


def programs(world: FakeWorld, index: int) -> list[FakeChild]:
    """The processes of runs on that pod, in the order in which they were started."""
    return [child for child in world.pod(index).agent.children if "A4_RUN" in child.launch.env]


def ends_after(world: FakeWorld, seconds: float) -> None:
    """What starts from now on ends well by itself."""
    for pod in world.pods:
        pod.life = Life(seconds=seconds)


def replace(world: FakeWorld, index: int, seconds: float = 3.0) -> None:
    """Its Job starts another pod in its place so much later, on another node and with another address."""
    pod = world.pod(index)

    def start() -> None:
        pod.address = f"10.9.0.{index}"
        world.net.names[pod.name] = [(world.seconds, pod.address)]
        pod.env = {"POD_NAME": f"replacement-{index}", "NODE_NAME": "node-99"}
        pod.start()

    world.at(world.seconds + seconds, start)


def test_a_killed_rank_costs_a_life_and_no_pod() -> None:
    world = first_run(env=LIVES)
    world.wait(5)
    programs(world, 2)[-1].die(-SIGKILL)
    ends_after(world, 4)
    assert world.run() == all_are(0), world.dump()
    assert world.last() < 10, world.dump()
    run = programs(world, 0)[0].launch.env["A4_RUN"].removesuffix(".1")
    for pod in world.pods:
        env = [child.launch.env for child in programs(world, pod.index)]
        given = [[one[name] for name in ("A4_RUN", "A4_LIFE", "A4_LIVES_LEFT", "MASTER_PORT")] for one in env]
        assert given == [[f"{run}.1", "1", "2", "6002"], [f"{run}.2", "2", "1", "6003"]]


FREE: Mapping[str, object] = {"used": {}}
HELD = {"used": {"GPU 0": 61204, "GPU 3": 700}, "holders": ["4121 python3"]}


@pytest.mark.parametrize(
    ("memory", "seconds", "begins", "said"),
    [
        ([FREE], 3.0, 3, ""),
        ([HELD, HELD, FREE], 1.0, 5, ""),
        ([HELD], 0.1, 14, "in use after 15 s: 61204 MiB of GPU 0, 700 MiB of GPU 3, by 4121 python3; script-"),
        ([{**HELD, "holders": []}], 6.5, 14, "by no process of this pod; script-"),
        ([{"problem": "GPU 3 is lost"}], 1.0, 1, "not known whether GPUs are free for script-"),
        ([FREE], None, 15, ".2: nvidia-smi has not answered within 15 s"),
    ],
)
def test_the_next_life_begins_when_gpus_are_free_or_after_a_while(
    memory: list[Mapping[str, object]], seconds: float | None, begins: int, said: str
) -> None:
    """The driver may give memory back only some time after SIGKILL."""
    world = first_run(env={**LIVES, "A4_RUN_HEALTH": "false"})
    world.wait(5)
    pod = world.pod(1)
    pod.programs["nvidia-smi"] = "/usr/bin/nvidia-smi"
    pod.gpu_memory, pod.reading_seconds = memory, seconds
    ends_after(world, 4)
    programs(world, 2)[-1].die(-SIGKILL)
    killed = world.seconds
    assert world.run() == all_are(0), world.dump()
    assert begins <= world.last() - killed - 4 < begins + 1, world.dump()
    warned = [line for line in pod.log.getvalue().splitlines() if "warning" in line]
    assert len(warned) == bool(said) and all(said in line for line in warned)


def test_a_run_that_is_ended_meanwhile_waits_for_no_gpu() -> None:
    world = FakeWorld(4, "none", {**LIVES, "SLEEP_INFINITY": "true", "A4_RUN_HEALTH": "false"}, life=FOREVER)
    world.until(world.asleep)
    run = world.submit(1, "script")
    world.wait(2)
    pod = world.pod(1)
    pod.programs["nvidia-smi"], pod.gpu_memory = "/usr/bin/nvidia-smi", [HELD]
    programs(world, 2)[-1].die(-SIGKILL)
    world.wait(4)
    world.ask(1, "cancel", run=run)
    world.wait(20)
    assert world.asleep() and len(programs(world, 1)) == 1, world.dump()
    assert "in use after" not in pod.log.getvalue()


def test_a_killed_pod_is_replaced_and_the_others_stay() -> None:
    world = first_run(env=LIVES)
    world.wait(5)
    others = {pod.index: pod.agent for pod in world.others(2)}
    world.pod(2).kill()
    replace(world, 2)
    ends_after(world, 4)
    assert world.run() == all_are(0), world.dump()
    assert {pod.index: pod.agent for pod in world.others(2)} == others
    assert "pod 2, replacement-2, node node-99, has 10.9.0.2 now; 10.0.0.3 before" in world.pod(0).log.getvalue()
    assert "/run/a4-agent/results/pod-logs/worker-2-life-2.log" in world.pod(2).stored, "that of the lost pod stays"
    assert world.last() < 15, world.dump()


@pytest.mark.parametrize(("sick", "spared"), [({2}, {0, 1}), ({0, 2}, {0, 1, 2})])
def test_a_pod_whose_devices_broke_is_replaced(sick: set[int], spared: set[int]) -> None:
    """Its rank, and those of others, end with codes that alone give no life. Pod 0 has no replacement but a new job."""
    world = first_run(3, {**REPORT, **LIVES})
    agents = {pod.index: pod.agent for pod in world.pods}
    for index in sick:
        world.pod(index).readings = [COUNTED, DOWN]
    world.wait(60)
    programs(world, 1)[-1].die(1)
    ends_after(world, 4)
    replace(world, 2, 12.0)
    codes = world.run()
    assert {pod.index for pod in world.pods if pod.agent is agents[pod.index]} == spared, world.dump()
    found = result(world)
    if 0 in sick:
        assert codes == all_are(1, 3) and "lives" not in found
        return
    assert codes == all_are(0, 3), world.dump()
    (life,) = found["lives"]
    assert life["lost"] == [2] and life["verdict"]["code"] == 1
    assert "is lost: RDMA link went down: 1 in 60 s on mlx5_0/1" in world.pod(0).log.getvalue()


@pytest.mark.parametrize(("reasons", "lives"), [("lost", ["1"]), ("lost,stalled", ["1", "2", "3"])])
def test_a_run_that_stands_still_starts_again_where_that_is_wished_for(reasons: str, lives: list[str]) -> None:
    """What was seen in each life stays."""
    world = first_run(env={**LIVES, "A4_RESTART_ON": reasons, "A4_STALL_TIMEOUT_SECONDS": "200"})
    world.wait(300)
    ends_after(world, 4)
    assert world.run() == all_are(0 if "2" in lives else 124), world.dump()
    assert [child.launch.env["A4_LIFE"] for child in programs(world, 1)] == lives
    kept = {path.rpartition("/")[2] for path in world.pod(1).stored if "/evidence/" in path}
    assert kept == {"worker-1.txt", *(f"worker-1-life-{life}.txt" for life in lives[1:-1])}
    run = programs(world, 1)[0].launch.env["A4_RUN"].removesuffix(".1")
    assert f"/run/a4-agent/runs/{run}/evidence.txt" in world.pod(1).agent.files


def test_two_pods_at_once_and_a_third_while_they_are_waited_for() -> None:
    world = first_run(env=LIVES)
    world.wait(5)
    for index in (1, 2):
        world.pod(index).kill()
        replace(world, index, 10.0 * index)
    world.wait(17)
    world.pod(3).kill()
    replace(world, 3, 1.0)
    ends_after(world, 4)
    assert world.run() == all_are(0), world.dump()
    assert [child.launch.env["A4_LIFE"] for child in programs(world, 0)] == ["1", "2"]


@pytest.mark.parametrize("muted", [{(0, 2)}, {(2, 0)}, {(0, 2), (2, 0)}])
def test_a_pod_that_was_cut_off_is_let_in_again_with_the_same_agent(muted: set[tuple[int, int]]) -> None:
    world = first_run(env=LIVES)
    agent = world.pod(2).agent
    world.wait(5)
    world.net.mute |= muted
    world.at(60, lambda: world.net.mute.clear())
    ends_after(world, 4)
    assert world.run() == all_are(0), world.dump()
    assert world.pod(2).agent is agent and 60 < world.last() < 80, world.dump()
    killed, again = programs(world, 2)
    assert killed.over and again.launch.env["A4_LIFE"] == "2"


@pytest.mark.parametrize("workload", ["script", "mpirun", "torchrun"])
def test_a_pod_that_is_told_to_end_leaves_the_others_time_to_save(workload: str) -> None:
    """As when its node is drained: the processes of all pods are told to end, and the job goes on."""
    world = FakeWorld(4, "none", {**LIVES, "SLEEP_INFINITY": "true"}, life=FOREVER)
    world.until(world.asleep)
    run = world.submit(1, workload, args=["./program"])
    world.wait(5)
    world.pod(2).signal(SIGTERM)
    world.until(lambda: world.pod(2).code is not None)
    replace(world, 2)
    ends_after(world, 4)
    end = world.ask(1, "wait", run=run)["ok"]["end"]
    assert world.pod(2).living and end["code"] == (65 if workload == "mpirun" else 0), world.dump()
    assert programs(world, 0)[0].signals == [SIGTERM], world.dump()


def test_a_job_that_is_told_to_end_does_not_start_again() -> None:
    world = first_run(env=LIVES)
    world.wait(5)
    world.signal(SIGTERM)
    assert set(world.run().values()) == {143}, world.dump()
    assert len(programs(world, 0)) == 1


@pytest.mark.parametrize(("status", "code"), [(3, 3), (1, 1), (-SIGSEGV, 139)])
def test_what_gives_no_life_ends_the_run(status: int, code: int) -> None:
    world = first_run(env=LIVES)
    world.wait(1)
    programs(world, 2)[-1].die(status)
    assert world.run() == all_are(code), world.dump()
    assert len(programs(world, 0)) == 1


def test_the_last_end_stands_when_all_lives_are_used_up() -> None:
    """For the run. With that code every pod would be replaced as if it alone were lost: the job has another."""
    world = FakeWorld(4, "script", LIVES)
    world.pod(2).life = RANK_KILLED
    assert world.run() == all_are(79), world.dump()
    assert [child.launch.env["A4_LIVES_LEFT"] for child in programs(world, 0)] == ["2", "1", "0"]
    result = json.loads(next(text for name, text in world.pod(0).stored.items() if name.endswith("result.json")))
    assert [life["verdict"]["code"] for life in result["lives"]] == [137, 137]
    assert result["verdict"]["code"] == 137 and "in place of 137" in world.pod(1).said()["why"]


def test_no_replacement_comes() -> None:
    world = first_run(env={**LIVES, "A4_REPLACEMENT_SECONDS": "50"})
    world.wait(5)
    world.pod(2).kill()
    assert world.run() == {0: 79, 1: 79, 2: KILLED, 3: 79}, world.dump()
    said = world.pod(1).said()
    assert said["where"] == world.pod(2).where and "no replacement of pod 2 came within 50 s" in said["why"]
    assert 5 + 30 + 50 - 5 < world.last() < 5 + 30 + 50 + 15, world.dump()


@pytest.mark.parametrize("event", ["plan-ready", "cluster-formed"])
def test_a_pod_that_is_lost_before_the_first_run(event: str) -> None:
    world = FakeWorld(4, "script", LIVES)
    world.until_event(event, 0)
    world.pod(3).kill()
    replace(world, 3, 2.0)
    assert world.run() == all_are(0), world.dump()
    assert len(programs(world, 0)) == 1


def test_a_sleeping_cluster_lets_a_replacement_in() -> None:
    world = FakeWorld(4, "none", {**LIVES, "SLEEP_INFINITY": "true"})
    world.until(world.asleep)
    world.pod(2).kill()
    replace(world, 2)
    world.wait(20)
    world.until(world.asleep)
    assert not world.pod(1).state().get("lost"), world.dump()
    ends_after(world, 4)
    run = world.submit(2, "script")
    assert world.ask(1, "wait", run=run)["ok"]["end"]["code"] == 0, world.dump()
    world.ask(1, "release")
    assert world.run() == all_are(0), world.dump()


def test_a_run_is_ended_while_it_waits_for_a_pod() -> None:
    world = FakeWorld(4, "none", {**LIVES, "SLEEP_INFINITY": "true"}, life=FOREVER)
    world.until(world.asleep)
    run = world.submit(1, "script")
    world.wait(5)
    world.pod(2).kill()
    world.wait(40)
    said = world.pod(1).state()["run"]
    assert (said["life"], said["awaits"]) == (2, [2])
    world.ask(1, "cancel", run=run)
    assert world.ask(1, "wait", run=run)["ok"]["end"]["code"] == 130, world.dump()


def test_output_is_followed_through_lives() -> None:
    world = FakeWorld(4, "none", {**LIVES, "SLEEP_INFINITY": "true"}, life=Life(seconds=None, output=b"one\n"))
    world.until(world.asleep)
    run = world.submit(1, "script")
    world.wait(2)
    for pod in world.pods:
        pod.life = Life(seconds=2.0, output=b"two\n")
    programs(world, 2)[-1].die(-SIGKILL)
    for index in range(4):
        why = f"/workload/task/task-script.sh was killed by SIGKILL ({world.pod(2).where})"
        begins = b"" if index else f"a4-agent: {run}.2 starts again after this: {why}; 1 life left\n".encode()
        assert printed(world, 1, run, index) == b"one\n" + begins + b"two\n", world.dump()


@pytest.mark.parametrize("replaced", [True, False])
def test_a_pod_that_comes_while_the_cluster_has_a_run_keeps_what_that_prints(replaced: bool) -> None:
    """In the place of a lost one, or cut off until now. It hears the end of the job's first run, too."""
    world = FakeWorld(4, "none", {**LIVES, "SLEEP_INFINITY": "true"}, life=Life(seconds=None, output=b"one\n"))
    world.until(world.asleep)
    run = world.submit(1, "script")
    world.wait(2)
    if replaced:
        world.pod(2).kill()
        replace(world, 2)
    else:
        world.net.mute |= {(0, 2), (2, 0)}
        world.at(world.seconds + 50, lambda: world.net.mute.clear())
    for pod in world.pods:
        pod.life = Life(seconds=2.0, output=b"two\n")
    world.until(lambda: len(programs(world, 2)) == (1 if replaced else 2))
    assert world.pod(2).state()["phase"] == "running", world.dump()
    assert printed(world, 1, run, 2) == (b"two\n" if replaced else b"one\ntwo\n"), world.dump()
    world.wait(10)
    log = f"/run/a4-agent/results/runs/{run}/pod-logs/worker-2{'-life-2' if replaced else ''}.log"
    assert "two\n" in world.pod(2).stored[log], world.dump()


@dataclass(frozen=True)
class Loss:
    """What happens to one pod while a run with lives goes on."""

    kind: str
    pod: int
    second: float
    lasts: float

    def apply(self, world: FakeWorld) -> None:
        acts = {
            "rank": self.lose_rank,
            "kill": self.kill,
            "term": self.end,
            "pause": lambda world: world.pod(self.pod).pause(self.lasts),
            "delay": self.delay,
            "strand": self.strand,
        }
        act = acts.get(self.kind, self.isolate)
        world.at(self.second, lambda: act(world))

    def lose_rank(self, world: FakeWorld) -> None:
        for child in programs(world, self.pod)[-1:] if world.pod(self.pod).living else ():
            child.die(-SIGKILL)

    def kill(self, world: FakeWorld) -> None:
        world.pod(self.pod).kill()
        replace(world, self.pod, self.lasts)

    def end(self, world: FakeWorld) -> None:
        world.pod(self.pod).signal(SIGTERM)
        self.replace_once_over(world)

    def replace_once_over(self, world: FakeWorld) -> None:
        if world.pod(self.pod).living:
            world.at(world.seconds + 1.0, lambda: self.replace_once_over(world))
        else:
            replace(world, self.pod, self.lasts)

    def delay(self, world: FakeWorld) -> None:
        world.net.delays[(self.pod, 0)] = self.lasts
        world.at(self.second + 60, world.net.delays.clear)

    def strand(self, world: FakeWorld) -> None:
        if world.pod(self.pod).living:
            world.pod(self.pod).strand()
            replace(world, self.pod, self.lasts)

    def isolate(self, world: FakeWorld) -> None:
        """`deaf`, `mute`, or both."""
        others, mute = [other.index for other in world.others(self.pod)], world.net.mute
        deaf = set() if self.kind == "mute" else {(index, self.pod) for index in others}
        ways = deaf | (set() if self.kind == "deaf" else {(self.pod, index) for index in others})
        mute |= ways
        world.at(self.second + self.lasts, lambda: mute.difference_update(ways))


SECONDS = st.one_of(st.floats(1.0, 60.0).map(lambda seconds: round(seconds, 1)), st.floats(25.0, 40.0))
MOMENTS = st.one_of(st.floats(0.14, 100.0).map(lambda second: round(second, 2)), st.floats(0.05, 0.3))
OF_WORKERS = ("rank", "kill", "term", "pause", "delay", "strand", "deaf", "mute", "cut")
OF_POD_0 = ("rank", "pause", "deaf", "mute", "cut")
LOSSES = st.one_of(
    st.builds(Loss, st.sampled_from(OF_WORKERS), st.integers(1, 3), MOMENTS, SECONDS),
    st.builds(Loss, st.sampled_from(OF_POD_0), st.just(0), MOMENTS, SECONDS),
)


@examples(40)
@given(st.lists(LOSSES, min_size=1, max_size=3), st.integers(0, 9))
def test_no_two_lives_at_once_and_the_job_ends_well(losses: list[Loss], seed: int) -> None:
    """Whatever pods go through, and when, while pod 0 lives."""
    world = FakeWorld(4, "script", {"A4_LIVES": "50"}, seed, life=Life(seconds=20.0))
    begun: list[FakeChild] = []

    def watch(child: FakeChild) -> None:
        if "A4_RUN" in child.launch.env:
            life = int(child.launch.env["A4_LIFE"])
            older = [one for one in begun if not one.over and int(one.launch.env["A4_LIFE"]) < life]
            assert not older, f"{losses}: life {life} begins beside {older[0].launch.env['A4_RUN']}\n{world.dump()}"
            begun.append(child)

    world.started = watch
    for loss in losses:
        loss.apply(world)
    world.until(lambda: world.pod(0).code is not None, 5000)
    assert world.pod(0).code == 0, f"{losses}\n{world.dump()}"


def test_lives_push_no_run_out_of_those_that_are_kept() -> None:
    world = sleeping(2, LIVES)
    runs = []
    for _ in range(12):
        runs.append(world.submit(1, "script"))
        ends(world, 1, runs[-1])
    for index in range(2):
        assert sum("ok" in world.ask(1, "read", run=run, pod=index) for run in runs) >= 10

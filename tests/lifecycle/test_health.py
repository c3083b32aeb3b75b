"""What devices counted before and after a run, and the look at all pods before it: neither ever holds a run up."""

from __future__ import annotations

from typing import Any

import pytest

from agent.commands.run import GATES
from agent.lifecycle.runs.gate import LOOK_SECONDS
from tests.fake.pod import COUNTED
from tests.fake.process import FOREVER, Life
from tests.fake.world import FakeWorld
from tests.lifecycle.test_results import REPORT, result

DOWN = {**COUNTED, "uptime": 160.0, "counters": {"mlx5_0/1": {"link_downed": 2}}}
WHERE = "health during the run: fatal: RDMA link went down: 1 in 60 s on mlx5_0/1 of pod 2, node node-2"
HEALTHY: dict[str, Any] = {"environment": {}, "disks": [], "driver": "", "names": [], "problems": {"disks": "x"}}
SICK = {
    **HEALTHY,
    "rdma": [{"name": "mlx5_3", "ports": [{"port": 1, "state": "DOWN", "rate": "400 Gb/sec", "gids": []}]}],
    "limits": {"memlock": ["unlimited"], "nofile": [1]},
    "problems": {},
    "disks": [{"path": "/", "problem": "", "bytes": 100, "bytes_free": 50, "files": 0}],
}


def health(found: dict[str, Any]) -> dict[int, list[tuple[str, str]]]:
    seen: dict[int, list[tuple[str, str]]] = {}
    for one in found.get("findings", []):
        seen.setdefault(one["pod"], []).append((one["state"], one["value"]))
    return seen


def told_to_end(world: FakeWorld) -> None:
    """As when the job is deleted; nobody's devices can be read any more."""
    for pod in world.pods:
        pod.reading_seconds = None
        pod.signal()


def test_what_a_run_changed_is_in_its_result_and_its_text() -> None:
    world = FakeWorld(3, "script", REPORT)
    for pod in world.pods:
        pod.life = Life(seconds=60)
    world.pod(2).readings = [COUNTED, DOWN]
    assert set(world.run().values()) == {0}, world.dump()
    found = result(world)
    nothing = [("ok", "nothing on 1 device in 1 s")]
    assert health(found) == {0: nothing, 1: nothing, 2: [("bad", "1 in 60 s")]}
    assert found["warnings"] == [WHERE] and found["verdict"]["status"] == "passed"
    assert f"{WHERE}\n" in world.pod(0).agent.emitted[1].decode()


@pytest.mark.parametrize(("seconds", "life"), [(None, 60.0), (20.0, 5.0)])
def test_a_reading_that_does_not_come_holds_up_nothing(seconds: float | None, life: float) -> None:
    ended = {}
    for needed in (0.0, seconds):
        world = FakeWorld(3, "script", REPORT)
        for pod in world.pods:
            pod.life = Life(seconds=life)
        world.pod(1).reading_seconds = needed
        assert set(world.run().values()) == {0}, world.dump()
        ended[needed] = world.last()
    assert health(result(world))[1] == [("unknown", "the devices were not read before the run ended")]
    assert ended[seconds] - ended[0.0] < 0.1


def test_the_last_reading_may_take_some_seconds() -> None:
    world = FakeWorld(3, "script", REPORT)
    for pod in world.pods:
        pod.life = Life(seconds=60)
    world.at(30, lambda: setattr(world.pod(1), "reading_seconds", None))
    assert set(world.run().values()) == {0}, world.dump()
    assert health(result(world))[1] == [("unknown", "the devices were not read within 4.9 s after the run")]


def test_a_run_that_is_told_to_end_is_not_looked_at_again() -> None:
    world = FakeWorld(3, "script", REPORT)
    for pod in world.pods:
        pod.life = FOREVER
    world.at(31, lambda: told_to_end(world))
    assert set(world.run().values()) == {143}, world.dump()
    assert health(result(world))[1] == [("unknown", "the run was told to end")]


def test_a_run_that_hit_its_limit_is_looked_at_again() -> None:
    world = FakeWorld(3, "script", {**REPORT, "A4_WORKLOAD_TIMEOUT_SECONDS": "60"})
    for pod in world.pods:
        pod.life = FOREVER
    world.pod(2).readings = [COUNTED, DOWN]
    world.at(30, lambda: setattr(world.pod(2), "reading_seconds", 3.0))
    assert set(world.run().values()) == {124}, world.dump()
    assert health(result(world))[2] == [("bad", "1 in 60 s")]


@pytest.mark.parametrize("life", [58, 62])
def test_a_limit_does_not_count_once_all_parts_are_over(life: float) -> None:
    """It comes while a pod still reads its devices, or has come when the last part ends while pods are asked."""
    world = FakeWorld(3, "script", {**REPORT, "A4_WORKLOAD_TIMEOUT_SECONDS": "60"})
    for pod in world.pods:
        pod.life, pod.evidence_seconds = Life(seconds=life), 8.0
    world.at(30, lambda: setattr(world.pod(2), "reading_seconds", 4.5))
    assert set(world.run().values()) == {0}, world.dump()


def test_who_failed_first_does_not_depend_on_readings() -> None:
    world = FakeWorld(3, "script", REPORT)
    for pod in world.pods:
        pod.life = Life(1, seconds=51)
    world.pod(0).life = Life(3, seconds=50)
    world.at(40, lambda: setattr(world.pod(0), "reading_seconds", 4.0))
    assert set(world.run().values()) == {3}, world.dump()
    found = result(world)
    assert found["verdict"]["where"] == world.pod(0).where
    assert {pod: state for pod, ((state, _),) in health(found).items()} == dict.fromkeys(range(3), "ok")


def test_a_strange_reading_does_not_end_the_run() -> None:
    world = FakeWorld(3, "script", REPORT)
    for pod in world.pods:
        pod.life = Life(seconds=60)
    world.pod(2).readings = [COUNTED, {"uptime": 160.0}]
    assert set(world.run().values()) == {0}, world.dump()
    assert health(result(world))[2] == [("unknown", "the readings cannot be compared: KeyError: 'problems'")]


def test_readings_can_be_switched_off() -> None:
    world = FakeWorld(3, "script", {**REPORT, "A4_RUN_HEALTH": "false"})
    assert set(world.run().values()) == {0}, world.dump()
    assert "findings" not in result(world)


# The gate


def gated(word: str, pods: int = 3, workload: str = "script") -> FakeWorld:
    world = FakeWorld(pods, workload, {**REPORT, "A4_GATE": word})
    for pod in world.pods:
        pod.wish = {"gate": GATES[pod.settings.gate]}
        pod.health = HEALTHY | {"problems": {}, "disks": SICK["disks"]}
    return world


def test_healthy_pods_pass_the_gate() -> None:
    world = gated("strict")
    assert set(world.run().values()) == {0}, world.dump()
    assert world.pod(1).workloads()


@pytest.mark.parametrize("workload", ["script", "none", "connectivity"])
def test_a_fatal_finding_ends_the_job_before_anything_starts(workload: str) -> None:
    world = gated("true", workload=workload)
    world.pod(2).health = SICK
    assert set(world.run().values()) == {65}, world.dump()
    assert not any(pod.workloads() for pod in world.pods)
    for pod in world.pods:
        said = pod.said()
        assert (said["what"], said["where"]) == ("the gate: pod 2 of 3 with a fatal finding", world.pod(2).where)
        assert said["why"].startswith(
            "go on without: a4-agent run --exclude 2 …\nchart: --set 'avoidNodes={node-2}'\n"
            f"RDMA ports: DOWN on mlx5_3/1 of {world.pod(2).where}\n"
        )
        assert "kubectl label node node-2 " in said["why"]


def test_a_check_that_could_not_look_fails_only_with_strict() -> None:
    for word, code in (("true", 0), ("strict", 65)):
        world = gated(word)
        world.pod(1).health = HEALTHY
        assert set(world.run().values()) == {code}, world.dump()
    assert world.pod(2).said()["what"] == "the gate: checks could not look on pod 1 of 3"


@pytest.mark.parametrize("word", ["true", "strict"])
def test_a_pod_that_does_not_look_at_itself_is_named(word: str) -> None:
    world = gated(word)
    world.pod(1).reading_seconds = None
    assert set(world.run().values()) == {69}, world.dump()
    said = world.pod(0).said()
    assert (said["what"], said["where"]) == ("the gate: pod 1 of 3 did not answer", world.pod(1).where)
    assert said["why"].startswith("go on without: a4-agent run --exclude 1 …\n")


def test_a_pod_that_says_that_it_cannot_look_at_itself_is_not_waited_for() -> None:
    world = gated("true")
    world.pod(1).health = {}
    assert set(world.run().values()) == {69}, world.dump()
    assert world.seconds < LOOK_SECONDS


def test_a_pod_that_is_lost_at_the_gate_ends_the_job() -> None:
    world = gated("true")
    world.pod(1).reading_seconds = 20.0
    world.at(10, world.pod(1).kill)
    codes = world.run()
    assert (codes[0], codes[2]) == (75, 75), world.dump()


def test_a_signal_at_the_gate_ends_the_job() -> None:
    world = gated("true")
    world.pod(1).reading_seconds = 20.0
    world.at(10, lambda: told_to_end(world))
    assert set(world.run().values()) == {143}, world.dump()


def test_strange_readings_at_the_gate_end_the_run_and_not_the_agent() -> None:
    world = gated("true")
    world.pod(1).health = {"disks": 7}
    assert set(world.run().values()) == {70}, world.dump()
    said = world.pod(0).said()
    assert said["what"].startswith("a bug in a4-agent") and "examine_all" in said["why"]
    assert result(world)["verdict"]["code"] == 70

"""What devices counted before and after a run, and the look at all pods before it: neither ever holds a run up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from agent.commands.run import GATES
from agent.lifecycle.runs.gate import LOOK_SECONDS
from tests.fake.pod import COUNTED
from tests.fake.process import Life
from tests.fake.world import FakeWorld
from tests.lifecycle.test_results import REPORT, RESULTS, result

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
WELL = HEALTHY | {"problems": {}, "disks": SICK["disks"]}


def health(found: dict[str, Any]) -> dict[int, list[tuple[str, str]]]:
    seen: dict[int, list[tuple[str, str]]] = {}
    for one in found.get("findings", []):
        seen.setdefault(one["pod"], []).append((one["state"], one["value"]))
    return seen


def told_to_end(world: FakeWorld) -> None:
    """As when the job is deleted; nobody's devices can be read any more."""
    world.every(reading_seconds=None)
    world.signal()


def test_what_a_run_changed_is_in_its_result_and_its_text() -> None:
    world = FakeWorld(3, "script", REPORT, life=Life(seconds=60))
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
        world = FakeWorld(3, "script", REPORT, life=Life(seconds=life))
        world.pod(1).reading_seconds = needed
        assert set(world.run().values()) == {0}, world.dump()
        ended[needed] = world.last()
    assert health(result(world))[1] == [("unknown", "the devices were not read before the run ended")]
    assert ended[seconds] - ended[0.0] < 0.1


def slow(world: FakeWorld, seconds: float | None) -> None:
    world.pod(2).reading_seconds = seconds


@pytest.mark.parametrize(
    ("life", "reading", "happens", "code", "found"),
    [
        (
            60.0,
            DOWN,
            partial(slow, seconds=None),
            0,
            ("unknown", "the devices were not read within 4.9 s after the run"),
        ),
        (60.0, {"uptime": 1}, None, 0, ("unknown", "the readings cannot be compared: KeyError: 'problems'")),
        (None, DOWN, told_to_end, 143, ("unknown", "the run was told to end")),
        (None, DOWN, partial(slow, seconds=3.0), 124, ("bad", "1 in 60 s")),
    ],
    ids=["slow", "strange", "told to end", "time limit"],
)
def test_the_reading_after_a_run(
    life: float | None,
    reading: dict[str, Any],
    happens: Callable[[FakeWorld], None] | None,
    code: int,
    found: tuple[str, str],
) -> None:
    world = FakeWorld(3, "script", {**REPORT, "A4_WORKLOAD_TIMEOUT_SECONDS": "70"}, life=Life(seconds=life))
    world.pod(2).readings = [COUNTED, reading]
    if happens:
        world.at(31, partial(happens, world))
    assert set(world.run().values()) == {code}, world.dump()
    assert health(result(world))[2] == [found]


@pytest.mark.parametrize("life", [58, 62])
def test_a_limit_does_not_count_once_all_parts_are_over(life: float) -> None:
    """It comes while a pod still reads its devices, or has come when the last part ends while pods are asked."""
    world = FakeWorld(3, "script", {**REPORT, "A4_WORKLOAD_TIMEOUT_SECONDS": "60"})
    world.every(life=Life(seconds=life), evidence_seconds=8.0)
    world.at(30, lambda: setattr(world.pod(2), "reading_seconds", 4.5))
    assert set(world.run().values()) == {0}, world.dump()


WAITS = "what devices of pods {} counted is still read, for 7 s at most"


def reading(status: int, *, sleeps: bool) -> tuple[FakeWorld, float]:
    """Pod 2 will need 4.5 s to read its devices after a run; with it the second in which its processes end."""
    env = {**REPORT, "SLEEP_INFINITY": str(sleeps).lower()}
    world = FakeWorld(3, "none" if sleeps else "script", env, life=Life(status, seconds=60))
    if sleeps:
        world.until(world.asleep)
        world.submit(1, "script")
    world.until_event("run-started")
    ended = world.seconds + 60
    world.pod(2).readings = [COUNTED, DOWN]
    world.at(ended - 30, partial(slow, world, 4.5))
    return world, ended


@pytest.mark.parametrize("sleeps", [False, True])
@pytest.mark.parametrize("status", [0, 3])
@pytest.mark.parametrize("what", ["cancelled", "a pod is killed", "a pod is told to end", "all are told to end"])
def test_what_happens_once_all_parts_are_over_changes_no_code(what: str, status: int, sleeps: bool) -> None:
    """A pod still reads its devices: that is not waited for any more."""
    world, ended = reading(status, sleeps=sleeps)
    world.wait(ended + 2 - world.seconds)
    if what == "cancelled":
        world.ask(1, "cancel", run="", why="somebody")
    elif what == "a pod is killed":
        world.pod(2).kill()
    else:
        for pod in world.pods[2 if what == "a pod is told to end" else 0 :]:
            pod.signal()
    world.wait(6.0 if what == "a pod is killed" else 3.0)
    assert world.pod(0).state()["runs"][-1]["code"] == status, world.dump()
    assert sleeps or world.pod(0).said()["code"] == status, world.dump()


@pytest.mark.parametrize("sleeps", [False, True])
@pytest.mark.parametrize("status", [0, 3])
def test_how_a_run_ends_is_said_while_devices_are_read(status: int, sleeps: bool) -> None:
    """And its result is stored without what they counted. With it, it is stored again, before who waits is answered."""
    world, ended = reading(status, sleeps=sleeps)
    client = world.pod(1 if sleeps else 0).agent.client()
    verdict, wait = client.ask("verdict", run=""), client.ask("wait", run="")
    world.until(lambda: verdict in client.answers)
    assert world.seconds - ended < 1, world.dump()
    told = client.answers[verdict]["ok"]
    assert told["end"]["code"] == status and told["waits"] == WAITS.format("0-2")
    where = f" ({told['end']['where']})" if status else ""
    said = f" ended with exit code {status}: {told['end']['what']}{where}; {told['waits']}\n"
    assert said in world.pod(0).log.getvalue()
    assert all(pod.living for pod in world.pods)
    world.wait(2)
    directory = RESULTS + ("/runs/" + world.pod(0).state()["run"]["id"] if sleeps else "")
    early = result(world, directory)
    assert early["verdict"]["code"] == status and 2 not in health(early)
    assert wait not in client.answers
    world.until(lambda: wait in client.answers)
    assert client.answers[wait]["ok"]["end"] == told["end"]
    found = result(world, directory)
    assert health(found)[2] == [("bad", "1 in 60 s")] and found["until"] == early["until"]
    assert world.pod(0).agent.emitted[1].decode().count(WHERE) == 1
    assert not sleeps or world.ask(1, "verdict", run="")["ok"] == {**told, "waits": ""}


def test_the_code_that_was_said_stands() -> None:
    """A pod is lost, which is said; then the job is deleted, while devices are read."""
    world, ended = reading(0, sleeps=False)
    world.at(ended - 59, world.pod(1).kill)
    client = world.pod(2).agent.client()
    verdict = client.ask("verdict", run="")
    world.until(lambda: verdict in client.answers)
    assert client.answers[verdict]["ok"]["waits"] == WAITS.format("0,2")
    world.signal()
    codes = world.run()
    assert client.answers[verdict]["ok"]["end"]["code"] == codes[0] == 75, world.dump()


def test_who_failed_first_does_not_depend_on_readings() -> None:
    world = FakeWorld(3, "script", REPORT, life=Life(1, seconds=51))
    world.pod(0).life = Life(3, seconds=50)
    world.at(40, lambda: setattr(world.pod(0), "reading_seconds", 4.0))
    assert set(world.run().values()) == {3}, world.dump()
    found = result(world)
    assert found["verdict"]["where"] == world.pod(0).where
    assert {pod: state for pod, ((state, _),) in health(found).items()} == dict.fromkeys(range(3), "ok")


def test_readings_can_be_switched_off() -> None:
    world = FakeWorld(3, "script", {**REPORT, "A4_RUN_HEALTH": "false"})
    assert set(world.run().values()) == {0}, world.dump()
    assert "findings" not in result(world)


# The gate


def gated(word: str, pods: int = 3, workload: str = "script") -> FakeWorld:
    world = FakeWorld(pods, workload, {**REPORT, "A4_GATE": word}, health=WELL)
    world.every(wish={"gate": GATES[world.pod(0).settings.gate]})
    return world


@pytest.mark.parametrize(
    ("word", "health", "code", "what"),
    [
        ("strict", WELL, 0, ""),
        ("true", HEALTHY, 0, ""),
        ("strict", HEALTHY, 65, "the gate: checks could not run on pod 1 of 3"),
        ("true", {}, 69, "the gate: pod 1 of 3 did not answer"),
        ("true", {"disks": 7}, 70, "a bug in a4-agent"),
    ],
)
def test_what_a_pod_says_at_the_gate(word: str, health: dict[str, Any], code: int, what: str) -> None:
    """One that says that it cannot look at itself is not waited for; a bug ends the run, and not the agent."""
    world = gated(word)
    world.pod(1).health = health
    assert set(world.run().values()) == {code}, world.dump()
    assert world.seconds < LOOK_SECONDS
    assert bool(world.pod(1).workloads()) == (code == 0)
    assert code == 0 or world.pod(0).said()["what"].startswith(what)
    assert result(world)["verdict"]["code"] == code


@pytest.mark.parametrize(("is_told", "code"), [(True, 143), (False, 75)])
def test_what_happens_at_the_gate_ends_the_job(is_told: bool, code: int) -> None:
    world = gated("true")
    world.pod(1).reading_seconds = 20.0
    world.at(10, partial(told_to_end, world) if is_told else world.pod(1).kill)
    codes = world.run()
    assert (codes[0], codes[2]) == (code, code), world.dump()


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
            "continue without: a4-agent run --exclude 2 …\nchart: --set 'avoidNodes={node-2}'\n"
            f"RDMA ports: DOWN on mlx5_3/1 of {world.pod(2).where}\n"
        )
        assert "kubectl label node node-2 " in said["why"]


@pytest.mark.parametrize("word", ["true", "strict"])
def test_a_pod_that_does_not_look_at_itself_is_named(word: str) -> None:
    world = gated(word)
    world.pod(1).reading_seconds = None
    assert set(world.run().values()) == {69}, world.dump()
    said = world.pod(0).said()
    assert (said["what"], said["where"]) == ("the gate: pod 1 of 3 did not answer", world.pod(1).where)
    assert said["why"].startswith("continue without: a4-agent run --exclude 1 …\n")

"""What the agent does for metrics (A4_METRICS_PORT): a process of its own in each pod, and fields of its state."""

from __future__ import annotations

import errno

from tests.fake.pod import COUNTED
from tests.fake.process import FakeChild, Life
from tests.fake.world import FakeWorld
from tests.lifecycle.test_health import DOWN
from tests.lifecycle.test_submitted import ends
from tests.lifecycle.test_why import LIMIT, standing_still

PORT = {"A4_METRICS_PORT": "9400"}


def exporters(world: FakeWorld, index: int) -> list[FakeChild]:
    return [child for child in world.pod(index).agent.children if "agent.exporter" in child.launch.argv]


def test_each_pod_has_one_without_the_marks_of_a_run_or_a_variable() -> None:
    world = FakeWorld(2, "script", {**PORT, "HF_TOKEN": "a-secret", "JOB_IDENTIFIER": "of a-secret"})
    assert set(world.run().values()) == {0}, world.dump()
    for pod in world.pods:
        (child,) = exporters(world, pod.index)
        assert child.launch.argv[4:] == ["9400", "/run/a4-agent", "of ***", pod.pod_name, f"node-{pod.index}"]
        assert (child.marks, child.launch.env) == (None, {"PATH": "/usr/sbin:/usr/bin"})


def test_without_the_setting_there_is_none_and_nothing_is_kept_for_it() -> None:
    world = FakeWorld(2, "script", life=Life(seconds=100))
    world.pod(1).readings = [COUNTED, DOWN]
    world.until_event("run-started")
    world.wait(50)
    assert "printed" not in world.pod(0).state()
    assert set(world.run().values()) == {0}, world.dump()
    assert exporters(world, 0) == exporters(world, 1) == []
    assert "findings" not in world.pod(1).state()


def test_one_that_dies_or_cannot_be_started_is_told_and_ends_nothing() -> None:
    words = b"Traceback:\nKeyError: 'x'\n"
    world = FakeWorld(2, "script", PORT, life=Life(seconds=900), exporter_life=Life(1, 10.0, output=words))
    world.pod(1).refusing["python3"] = errno.EAGAIN
    assert set(world.run().values()) == {0}, world.dump()
    assert len(exporters(world, 0)) == 5
    said = [pod.log.getvalue() for pod in world.pods]
    assert said[0].count("warning: the process that serves metrics ended with status 1: ") == 5
    assert said[1].count("metrics cannot be started: Resource temporarily unavailable") == 5
    assert [text.count("; it is not started again") for text in said] == [1, 1]


def test_the_silence_of_a_run_and_what_was_found_in_it() -> None:
    world, run = standing_still(env=PORT)
    world.wait(LIMIT * 2)
    since = world.pod(0).state()["run"]["since"]
    assert abs(world.pod(0).state()["printed"] - since) < 1 and world.pod(0).state()["stuck"] == "hangs", world.dump()
    world.pod(3).agent.children[-1].output(1, b"step 5\n")
    world.wait(LIMIT)
    assert abs(world.pod(0).state()["printed"] - since - LIMIT * 2) < 10
    assert "stuck" not in world.pod(0).state()
    assert "printed" not in world.pod(3).state(), "pod 0 has it of all pods"
    for pod in world.pods:
        pod.agent.children[-1].die(0)
    assert ends(world, 1, run)["end"]["code"] == 0
    assert not world.pod(0).state().keys() & {"printed", "stuck"}


def test_what_its_devices_counted() -> None:
    world = FakeWorld(3, "script", PORT, life=Life(seconds=60))
    world.pod(2).readings = [COUNTED, DOWN]
    assert set(world.run().values()) == {0}, world.dump()
    assert [world.pod(index).state()["findings"] for index in range(3)] == [{}, {}, {"fatal": 1}]

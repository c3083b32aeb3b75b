"""What programs write into A4_SERIES_FILE comes into result.json: at the end, and of a pod that is lost before that."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.lifecycle.runs.part_files import PIECE, SERIES_SECONDS
from tests.fake.process import FOREVER, Life
from tests.fake.world import FakeWorld
from tests.lifecycle.test_results import REPORT, result


def running(pods: int = 3) -> FakeWorld:
    world = FakeWorld(pods, "script", REPORT, life=FOREVER)
    world.until_event("run-started")
    world.wait(5)
    return world


def write(world: FakeWorld, index: int, text: str) -> None:
    """The program of that pod appends to its file."""
    agent = world.pod(index).agent
    path = agent.children[-1].launch.env["A4_SERIES_FILE"]
    agent.files[path] = agent.files.get(path, "") + text


def record(step: int, value: float) -> str:
    return json.dumps({"name": "loss", "step": step, "value": value}) + "\n"


def finish(world: FakeWorld) -> dict[str, Any]:
    for pod in world.pods:
        if pod.living:
            pod.agent.children[-1].die(0)
    world.run()
    return result(world)


def curves(found: dict[str, Any]) -> dict[int, list[float]]:
    (series,) = found["series"]
    return {curve["pod"]: curve["values"] for curve in series["curves"]}


def test_what_all_pods_wrote_until_the_end() -> None:
    world = running()
    for index in (0, 2):
        write(world, index, record(1, index + 0.5))
    write(world, 2, "step 2\n" + record(3, 9.0).rstrip())
    world.wait(3 * SERIES_SECONDS)
    write(world, 2, "\n" + record(4, 9.5))
    found = finish(world)
    assert found["verdict"]["status"] == "passed"
    assert curves(found) == {0: [0.5], 2: [2.5, 9.0, 9.5]}
    assert found["warnings"] == [
        "1 line of A4_SERIES_FILE on pod 2 cannot be read as a record, the first on pod 2: step 2"
    ]


def test_an_empty_file_is_said() -> None:
    world = running(2)
    write(world, 1, "")
    assert finish(world)["warnings"] == ["A4_SERIES_FILE on pod 1 is empty, or no regular file"]


def test_a_pod_that_writes_nothing_more_says_nothing_more() -> None:
    world = running(2)
    write(world, 1, "".join(record(step, step) for step in range(1000)))
    world.wait(2 * SERIES_SECONDS)
    told = world.net.carried
    world.wait(2 * SERIES_SECONDS)
    assert world.net.carried < 1.5 * told, "but that the pod lives"


def test_a_lost_pod_has_told_what_it_wrote_before() -> None:
    world = running()
    write(world, 1, record(1, 1.5) + record(2, 1.25) + "\n" * PIECE)
    write(world, 2, record(1, 2.5))
    world.wait(SERIES_SECONDS + 2)
    write(world, 1, record(3, 1.125))
    write(world, 2, record(2, 2.25))
    world.pod(1).kill()
    world.run()
    found = result(world)
    assert (found["verdict"]["code"], curves(found)) == (75, {1: [1.5, 1.25], 2: [2.5, 2.25]})


@pytest.mark.parametrize("threadless", [False, True])
def test_a_long_file_is_read_to_its_end(threadless: bool) -> None:
    world = running(2)
    world.pod(1).threadless = threadless
    write(world, 1, "".join(record(step, step) for step in range(10_000)))
    world.wait(2 * SERIES_SECONDS)
    write(world, 1, "".join(record(step, step) for step in range(10_000, 20_000)))
    found = finish(world)
    (series,) = found["series"]
    assert (series["records"], series["last"], series["last_step"]) == (20_000, 19_999, 19_999)


def test_without_such_files_nothing_is_said() -> None:
    world = FakeWorld(2, "script", REPORT, life=Life(0, 4 * SERIES_SECONDS))
    world.run()
    assert "series" not in result(world)

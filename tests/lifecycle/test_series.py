"""What programs and ranks leave comes into result.json: what they write into A4_SERIES_FILE, also that of a pod that is
lost before the end; when the first collective was complete; and what a rank had loaded."""

from __future__ import annotations

import json
from signal import SIGKILL
from typing import Any

import pytest

from agent.lifecycle.runs.part_files import PIECE, SERIES_SECONDS
from tests.fake.process import Life
from tests.fake.world import FakeWorld, first_run
from tests.lifecycle.test_results import REPORT, result
from tests.lifecycle.test_submitted import ends, running


def reported(pods: int = 3) -> FakeWorld:
    world = first_run(pods, REPORT)
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
    world = reported()
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


def test_what_they_wrote_in_an_earlier_life_stays() -> None:
    """Up to the checkpoint, from which the next life goes on."""
    world = first_run(2, {**REPORT, "A4_LIVES": "1"})
    world.wait(5)
    for step in (1, 2, 3):
        write(world, 1, record(step, step / 2))
    world.wait(SERIES_SECONDS)
    world.pod(0).agent.children[-1].die(-SIGKILL)
    world.wait(5)
    write(world, 1, record(3, 9.0))
    found = finish(world)
    assert curves(found) == {1: [0.5, 1.0, 9.0]}
    (life,) = found["lives"]
    moments = [life[name] for name in ("since", "noticed", "until", "joined", "next")]
    assert moments == sorted(moments) and moments[-1] < moments[1] + 3


def test_a_run_that_fails_at_the_same_step_again_has_no_third_life() -> None:
    world = first_run(2, {**REPORT, "A4_LIVES": "5"})
    world.wait(5)
    for _ in range(2):
        write(world, 1, record(7, 0.5))
        world.pod(1).agent.children[-1].die(-SIGKILL)
        world.wait(5)
    assert world.run() == {0: 80, 1: 80}
    found, said = result(world)["verdict"], world.pod(1).said()["why"]
    why = "not started again: life 1 ended in the same way at the same step, 7"
    assert found["code"] == 137 and said.startswith(why), said


def test_an_empty_file_is_said() -> None:
    world = reported(2)
    write(world, 1, "")
    assert finish(world)["warnings"] == ["A4_SERIES_FILE on pod 1 is empty, or no regular file"]


def test_a_pod_that_writes_nothing_more_says_nothing_more() -> None:
    world = reported(2)
    write(world, 1, "".join(record(step, step) for step in range(1000)))
    world.wait(2 * SERIES_SECONDS)
    told = world.net.carried
    world.wait(2 * SERIES_SECONDS)
    assert world.net.carried < 1.5 * told, "but that the pod lives"


def test_a_lost_pod_has_told_what_it_wrote_before() -> None:
    world = reported()
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
    world = reported(2)
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


# The first collective


ROW = "  1048576   262144   float   sum   -1   41.5   25.27   47.38   0   41.1   25.51   47.84   0\n"
NOTHING = "# nThread 1 nGpus 1\n#  size  count  type\n 10-0-0-1:77 [0] NCCL INFO 12 34 float\n"


def result_of(world: FakeWorld, run: str, code: int = 0) -> dict[str, Any]:
    for pod in world.pods:
        pod.agent.children[-1].die(code)
    ends(world, 0, run)
    found: dict[str, Any] = json.loads(world.pod(0).agent.files[f"/run/a4-agent/runs/{run}/result.json"])
    return found


def moments(found: dict[str, Any]) -> dict[int, float]:
    """Pod → seconds after the lead's process was started; pods that do not know it are left out."""
    start = found["pods"][0]["phases"]["process-started"]
    phases = {pod["index"]: pod["phases"] for pod in found["pods"]}
    return {index: known["first-collective"] - start for index, known in phases.items() if "first-collective" in known}


@pytest.mark.parametrize("cut", [1, 30, len(ROW) - 1])
def test_the_first_row_of_a_table_in_whatever_pieces_it_comes(cut: int) -> None:
    world, run = running("nccl", 3)
    lead = world.pod(0).agent.children[-1]
    for text in (NOTHING, ROW[:cut]):
        lead.output(1, text.encode())
        world.wait(10)
    lead.output(1, ROW[cut:].encode())
    world.wait(10)
    lead.output(1, ROW.encode())
    assert moments(result_of(world, run)) == pytest.approx(dict.fromkeys(range(3), 25.0), abs=0.5)


def left(world: FakeWorld, index: int, run: str, **files: str) -> None:
    for name, text in files.items():
        world.pod(index).agent.files[f"/run/a4-agent/runs/{run}/why/{name}"] = text


@pytest.mark.parametrize(("seconds", "known"), [(3, set()), (60, {0, 1})])
def test_a_collective_that_may_have_failed_is_not_taken_for_a_complete_one(seconds: float, known: set[int]) -> None:
    world, run = running("script", 2)
    for index in (0, 1):
        left(world, index, run, **{"first-collective": str(world.pod(0).agent.wall())})
    world.wait(seconds)
    assert set(moments(result_of(world, run, code=1))) == known


def test_what_ranks_have_left_on_each_pod() -> None:
    world, run = running("script", 3)
    start = world.pod(0).agent.wall()
    versions = '{"python": "3.12.1", "torch": "2.%d.0", "cuda": 13}'
    left(world, 0, run, **{"first-collective": str(start + 1), "versions.json": versions % 8})
    left(world, 1, run, **{"first-collective": str(start + 2), "versions.json": versions % 9})
    left(world, 2, run, **{"first-collective": "soon", "versions.json": '{"torch"'})
    found = result_of(world, run)
    known = moments(found)
    assert set(known) == {0, 1} and known[1] - known[0] == pytest.approx(1.0)
    assert {name: found["versions"].get(name) for name in ("python", "torch", "cuda")} == {
        "python": "3.12.1",
        "torch": "2.8.0, 2.9.0",
        "cuda": None,
    }

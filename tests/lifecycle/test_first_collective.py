"""When the first collective was complete: by the lead's output, or by what a rank of each pod has left; and what that
rank had loaded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fake.world import FakeWorld
from tests.lifecycle.test_submitted import ends, running

ROW = "  1048576   262144   float   sum   -1   41.5   25.27   47.38   0   41.1   25.51   47.84   0\n"
NOTHING = "# nThread 1 nGpus 1\n#  size  count  type\n 10-0-0-1:77 [0] NCCL INFO 12 34 float\n"


def result_of(world: FakeWorld, run: str) -> dict[str, Any]:
    for pod in world.pods:
        pod.agent.children[-1].die(0)
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

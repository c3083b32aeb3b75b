"""Runs with a rank that somebody is to start (`--without`): they are silent for as long as that takes."""

from __future__ import annotations

import pytest

from agent.errors import Exit
from tests.fake.process import FOREVER
from tests.fake.world import FakeWorld
from tests.lifecycle.test_submitted import ends, sleeping

LIMITS = {"A4_WHY_SECONDS": "60", "A4_STALL_TIMEOUT_SECONDS": "100"}


def waiting(world: FakeWorld, **wish: object) -> str:
    """A run of one rank on each pod, which waits for rank 1; its id."""
    world.every(life=FOREVER)
    return world.submit(0, "torchrun", args=["train.py"], without=1, per_node=1, **wish)


def test_nobody_comes() -> None:
    world = sleeping(env=LIMITS)
    run = waiting(world)
    world.wait(600)
    assert "printed nothing" not in world.pod(0).log.getvalue()
    (holder,) = [pod for pod in world.pods if f"/run/a4-agent/runs/{run}/start-rank-1" in pod.files_now]
    assert holder.agent.files[f"/run/a4-agent/runs/{run}/start-rank-1"].startswith("#!/bin/sh\nexec ")
    holder.agent.files[f"/run/a4-agent/runs/{run}/ranks/1"] = "nobody\n"
    holder.agent.children[-1].die(1)
    end = ends(world, 0, run)["end"]
    assert (end["code"], end["what"]) == (Exit.PEERS_MISSING, "nobody has started rank 1 within 600 s"), world.dump()
    assert f"pod {holder.index}, " in end["where"] and f"/run/a4-agent/runs/{run}/start-rank-1" in end["why"]


def test_a_limit_that_was_typed_counts() -> None:
    world = sleeping(env=LIMITS)
    run = waiting(world, stall=200)
    assert ends(world, 0, run)["end"]["code"] == Exit.TIME_LIMIT, world.dump()


@pytest.mark.parametrize("wish", [{"workload": "ddp"}, {"workload": "exec", "args": ["true"]}])
def test_other_workloads_start_all_ranks(wish: dict[str, object]) -> None:
    refused = sleeping().ask(0, "submit", spec={"by": "somebody", "without": 1, **wish})
    assert refused["error"]["code"] == Exit.USAGE and "starts all its ranks" in str(refused), refused

"""Lives: runs that start again on the same cluster after a rank or a pod is lost."""

from __future__ import annotations

from signal import SIGKILL

from tests.fake.process import FOREVER, FakeChild, Life
from tests.fake.world import FakeWorld, all_are, first_run

SCRIPT_KILLED = {"A4_LIVES": "2"}


def programs(world: FakeWorld, index: int) -> list[FakeChild]:
    """The processes of runs on that pod, in the order in which they were started."""
    return [child for child in world.pod(index).agent.children if "A4_RUN" in child.launch.env]


def ends_after(world: FakeWorld, seconds: float) -> None:
    """What starts from now on ends well by itself."""
    for pod in world.pods:
        pod.life = Life(seconds=seconds)


def test_a_killed_rank_costs_a_life_and_no_pod() -> None:
    world = first_run(env={"A4_LIVES": "2"})
    world.wait(5)
    programs(world, 2)[-1].die(-SIGKILL)
    ends_after(world, 4)
    assert world.run() == all_are(0), world.dump()
    assert world.last() < 15, world.dump()
    for pod in world.pods:
        run = programs(world, pod.index)[0].launch.env["A4_RUN"].removesuffix(".1")
        given = [
            (c.launch.env["A4_RUN"], c.launch.env["A4_LIFE"], c.launch.env["A4_LIVES_LEFT"])
            for c in programs(world, pod.index)
        ]
        assert given == [(f"{run}.1", "1", "2"), (f"{run}.2", "2", "1")]
    print(world.dump())

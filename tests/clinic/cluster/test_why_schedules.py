"""Real ranks do what simulated ones do, and are looked at: the simulation is right, and no healthy rank is blamed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.clinic.interface import diagnose
from agent.clinic.why.records import Collected
from tests.clinic.cluster.test_why import hanging_cluster, why
from tests.clinic.schedules import REAL_SIZE, World, halt, make, suits_real_ranks
from tests.cluster.conftest import END_SECONDS, Trial, starting
from tests.cluster.work import agent, following

CHECKOUT = Path(__file__).parents[3]
FILES = {"/workload/schedule.py": Path(__file__).with_name("programs").joinpath("schedule.py").read_bytes()}
SEEDS = (
    24, 69, 19, 27, 37, 42, 118, 151, 158, 219, 228, 291, 307, 328, 384, 389, 408, 421, 461, 481,
    509, 531, 581, 587, 588, 607, 662, 664, 677, 688, 694, 701, 729, 731, 762, 767, 791, 824, 881, 889,
)  # fmt: skip
"""The first that suit real ranks and do not come to their end; two that show most stand first."""
FEW = 2
MARKS = [pytest.mark.faults if at < FEW else pytest.mark.long for at in range(len(SEEDS))]


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    with starting() as start:
        yield hanging_cluster(start, REAL_SIZE // 2, FILES)


def stuck(seed: int) -> World:
    """The simulated world, where nobody goes on."""
    world = make(seed)
    world.run()
    assert suits_real_ranks(world) and any(rank.step for rank in world.ranks)
    halt(world)
    return world


def collected(trial: Trial, seed: int, world: World) -> Collected:
    """What is seen of real ranks that have come as far."""
    there = [f"test -e /mnt/{seed}-{rank}-{one.at}" for rank, one in enumerate(world.ranks)]
    with following(trial, 1, "torchrun", "--", "/workload/schedule.py", str(CHECKOUT), str(seed)) as (client, run):
        try:
            trial.until(0, " && ".join(there))
            return why(trial, run)
        finally:
            agent(trial, 0, "cancel", run)
            client.wait(END_SECONDS)


def entered(found: Collected) -> dict[tuple[int | None, str], int]:
    return {
        (process.rank, group.group): group.entered
        for pod in found.pods
        for process in pod.processes
        for group in process.groups
    }


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=mark) for seed, mark in zip(SEEDS, MARKS, strict=True)])
def test_no_healthy_rank_of_a_real_schedule_is_blamed(trial: Trial, seed: int) -> None:
    world = stuck(seed)
    found = collected(trial, seed, world)
    simulated = {
        (rank, str(group)): len(steps)
        for rank, one in enumerate(world.ranks)
        for group, steps in one.entered.items()
        if one.state != "T"  # it cannot be asked
    }
    assert entered(found) == simulated
    said = diagnose(found)
    assert {one.rank for one in said.culprits if one.fault != "odd"} <= world.guilty, (world.fault, said)
    assert said.status != "moves"

"""No healthy rank is blamed, whatever stands still and however little is seen of it."""

from __future__ import annotations

from collections import Counter

import pytest

from agent.clinic.interface import diagnose
from agent.decide.diagnosis import Diagnosis
from tests.clinic.schedules import FAULTS, Sight, World, halt, look, make, sight

COUNT = 2000
PARTS = 8


def stuck(seed: int, sees: Sight | None = None, *, mpi: bool = False) -> tuple[World, Diagnosis]:
    """A world that was run until nobody goes on, and what is said of it."""
    world = make(seed, mpi=mpi)
    world.run()
    halt(world)
    seen = sees or sight(world)
    return world, diagnose(look(world, seen, look(world, seen)))


def stands_still(world: World) -> bool:
    return any(one.step is not None for one in world.ranks)


def is_through(world: World, rank: int | None) -> bool:
    """That such a rank has ended is true, and may be said."""
    return rank is not None and world.ranks[rank].step is None


def wrongly_blamed(world: World, said: Diagnosis) -> set[int | None]:
    named = {one.rank for one in said.culprits if one.fault != "odd"}
    return {rank for rank in named if not is_through(world, rank)} - world.guilty


def is_halted(world: World, rank: int) -> bool:
    step = world.ranks[rank].step
    return step is not None and step.kind == "halt"


@pytest.mark.parametrize("part", range(PARTS))
def test_no_healthy_rank_is_blamed(part: int) -> None:
    for seed in range(part, COUNT, PARTS):
        world, said = stuck(seed)
        if not stands_still(world):
            continue
        assert not wrongly_blamed(world, said), (seed, world.fault, world.guilty, said.sentence)
        assert said.status != "moves", seed


def test_of_mpi_only_a_rank_that_is_alone_in_no_communicator_may_be_blamed() -> None:
    """No stack tells it from one that did not come to the operation that all others are in."""
    lonely = 0
    for seed in range(COUNT // 2):
        world, said = stuck(seed, mpi=True)
        wrong = wrongly_blamed(world, said)
        assert not wrong or {*wrong} == world.apart, (seed, world.fault, world.guilty, said.sentence)
        lonely += bool(wrong)
    assert lonely < COUNT / 200


@pytest.mark.parametrize("fault", ["asleep", "stopped", "dead", "gil", "two"])
def test_a_rank_that_others_wait_for_is_found(fault: str) -> None:
    """Wherever everything is seen."""
    found = Counter[bool]()
    for seed in range(FAULTS.index(fault), COUNT, len(FAULTS)):
        world, said = stuck(seed, Sight())
        arrived = {rank for rank in world.guilty if is_halted(world, rank)}
        others = [one for rank, one in enumerate(world.ranks) if rank not in world.guilty and one.step is not None]
        if not arrived or not others:
            continue
        found[said.status == "hangs" and bool({one.rank for one in said.culprits} & arrived)] += 1
    assert found[True] > 100
    assert found[False] == 0


def test_what_goes_on_is_not_blamed() -> None:
    """Ranks that are looked at while they work, not all at the same moment."""
    moving = 0
    for seed in range(0, COUNT, len(FAULTS)):
        world = make(seed)
        world.run(world.random.randint(2, 10))
        first = look(world, Sight())
        before = [sum(map(len, one.entered.values())) for one in world.ranks]
        world.run(12)
        after = [sum(map(len, one.entered.values())) for one in world.ranks]
        if any(new <= old for old, new in zip(before, after, strict=True)):
            continue
        moving += 1
        said = diagnose(look(world, Sight(), first))
        assert not said.culprits, (seed, said.sentence)
    assert moving > 25

"""What deciding takes grows with the number of ranks, not with its square: a coordinator decides on its own loop."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from agent import wire
from agent.clinic.interface import diagnose
from agent.clinic.why.records import Collected, Frame, GroupProgress, Operation, PodRecords, Process, Thread, Waiting
from tests.clinic.schedules import TORCH, TRAIN

MOST_ANSWER = 64 * 1024
FEW, TIMES = 64, 4
IN_BARRIER = Frame("MPI_Barrier", "libmpi.so")
Rank = Callable[[int, int], Process]
"""A rank of so many."""


def rank(number: int, *frames: Frame, groups: tuple[GroupProgress, ...] = (), syscall: str = "futex") -> Process:
    thread = Thread("MainThread", (*frames, Frame("main", TRAIN, 10)))
    waiting = Waiting("S", syscall=syscall)
    return Process(100 + number, 1, "S", "rank", number, waiting=(waiting,), threads=(thread,), groups=groups)


def world(
    entered: int, completed: int | None = 4, name: str = "all_reduce", started: int | None = None
) -> GroupProgress:
    return GroupProgress("0", "nccl", entered, completed, started, (Operation(entered, name),))


def receiving(number: int, source: int) -> Process:
    return rank(number, Frame("recv", TORCH, 1, {"src": str(source)}))


def in_pairs(number: int, size: int) -> tuple[GroupProgress, ...]:
    """Groups of eight beside each other, groups across these, and that of all."""
    row, column = number - number % 8, number % 8
    across = tuple(range(column, size, 8))
    return (
        world(4),
        GroupProgress(f"row{row}", "nccl", 9 - (number == 5), 8, ranks=tuple(range(row, row + 8))),
        GroupProgress(f"column{column}", "nccl", 3 + (number >= 8), 3, ranks=across),
    )


SHAPES: dict[str, tuple[str, Rank]] = {
    "one is behind": ("hangs", lambda one, size: rank(one, groups=(world(4 if one == 5 else 5),))),
    "half are behind": ("hangs", lambda one, size: rank(one, groups=(world(4 + one % 2),))),
    "all alike": ("unclear", lambda one, size: rank(one, groups=(world(5),))),
    "another operation": ("hangs", lambda one, size: rank(one, groups=(world(5, 4, "all" if one else "one"),))),
    "a device": ("hangs", lambda one, size: rank(one, groups=(world(5, 4, started=4 + one % 2),))),
    "rows and columns": ("hangs", lambda one, size: rank(one, groups=in_pairs(one, size))),
    "a pipeline": ("hangs", lambda one, size: receiving(one, one - 1) if one else rank(0, syscall="read")),
    "a ring": ("circle", lambda one, size: receiving(one, (one - 1) % size)),
    "half are not in MPI": (
        "unclear",
        lambda one, size: rank(one, IN_BARRIER) if one % 2 else rank(one, syscall="clock_nanosleep"),
    ),
    "one is not in MPI": (
        "hangs",
        lambda one, size: (rank(one, IN_BARRIER) if one else rank(0))._replace(stays=True),
    ),
}


def collected(shape: Rank, size: int) -> Collected:
    pods = [
        PodRecords(
            first // 8, f"p{first // 8}", "", processes=tuple(shape(one, size) for one in range(first, first + 8))
        )
        for first in range(0, size, 8)
    ]
    return Collected("r", pods=tuple(pods), ranks=size)


def work(seen: Collected) -> tuple[str, int]:
    """What is said, and how many instructions of Python that takes."""
    count = 0

    def trace(frame: FrameType, event: str, what: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        status = diagnose(seen).status
    finally:
        sys.settrace(before)
    return status, count


@pytest.mark.parametrize("name", ["half are behind", "a pipeline", "half are not in MPI"])
def test_the_answer_about_1024_pods_fits_into_a_message(name: str) -> None:
    seen = collected(SHAPES[name][1], 1024 * 8)
    assert len(json.dumps(wire.to_json(diagnose(seen)))) < MOST_ANSWER


def test_pods_that_show_nothing_are_named_together() -> None:
    """Every second one has a reason of its own."""
    seen = collected(SHAPES["one is behind"][1], 64)
    silent = {pod: f"silent for {pod} s" if pod % 2 else "it did not answer in time" for pod in range(8, 1024)}
    found = diagnose(seen._replace(silent=silent, ranks=1024 * 8))
    assert len(json.dumps(wire.to_json(found))) < MOST_ANSWER
    assert any("more" in one.text for one in found.sources)


@pytest.mark.parametrize("name", SHAPES)
def test_four_times_the_ranks_are_about_four_times_the_work(name: str) -> None:
    status, shape = SHAPES[name]
    small, large = (work(collected(shape, size)) for size in (FEW, TIMES * FEW))
    assert (small[0], large[0]) == (status, status)
    assert small[1] > 1000
    assert large[1] < 1.5 * TIMES * small[1]

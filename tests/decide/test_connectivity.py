"""Reading and judging the record of the connectivity test."""

from __future__ import annotations

import pytest

from agent.workloads.connectivity import ConnectivityRecord, neighbours
from agent.workloads.rank_record import read_record
from tests.decide.rank_records import NAMES, PLANNED, POD, SLOTS, TOKENS, Harm, Line, text, with_line


def lines(pods: int = 3, slots: int = SLOTS) -> list[Line]:
    """The record of a run in which all is right."""
    ranks = list(range(pods * slots))
    start = {"step": "start", "version": 1, "ranks": len(ranks), "world": len(ranks), "mpirun": "4.1.4"}
    seen = [
        {"rank": r, "token": TOKENS[r // slots], "pid": 10 + r, "node": f"node-{r // slots}", "library": "4.1.4"}
        for r in ranks
    ]
    pairs = [
        {"step": "pair", "ranks": list(pair), "latency_us": 10.0 + i, "bandwidth_gb_s": 2.0 - i / 10, "bytes": 1024}
        for i, pair in enumerate(neighbours(pods, slots))
    ]
    return [
        {**start, "library": "Open MPI v4.1.4, package: x"},
        {"step": "ranks", "ranks": seen},
        {"step": "sum", "wrong": []},
        *pairs,
        {"step": "end", "finished": ranks},
    ]


def parsed(text: str) -> ConnectivityRecord:
    return read_record(text, ConnectivityRecord())


def alone(record: list[Line]) -> None:
    record[0] |= {"world": 1, "library": "Open MPI v5.0.11, package: x"}
    del record[1:]


def other_library(record: list[Line]) -> None:
    for rank in (2, 3, 5):
        record[1]["ranks"][rank]["library"] = "5.0.11"


WRONG: list[tuple[Harm, str]] = [
    (
        with_line(2, wrong=[{"rank": 3, "index": 7, "expected": 168, "found": 167}]),
        f"rank 3 on {POD}2 got a wrong all-reduce: element 7 is 167, 168 is right",
    ),
    (alone, "mpirun 4.1.4 started 6 ranks, but MPI sees 1: the ranks' Python loads Open MPI v5.0.11;"),
    (other_library, "mpirun is Open MPI 4.1.4, but ranks 2-3, 5 use libmpi of 5.0.11;"),
    (lambda record: record.pop(3), f"rank 0 on {POD}0 and rank 2 on {POD}2 were not measured"),
]
"""And how the only reason begins: tests/decide/test_rank_records.py."""


@pytest.mark.parametrize(
    ("reached", "reason"),
    [
        (1, "6 ranks started, then they stopped before they told where they run"),
        (2, "stopped in the all-reduce"),
        (3, "(0 pairs done)"),
        (5, "(2 pairs done)"),
    ],
)
def test_a_record_that_ends_early_is_no_verdict(reached: int, reason: str) -> None:
    verdict = parsed(text(lines()[:reached])).judge(PLANNED)
    assert verdict.code is None
    assert reason in verdict.reasons[0]


def test_the_table_is_in_plan_order_and_marks_what_is_far_from_the_median() -> None:
    record = lines()
    record[3:6] = [record[5], record[3], record[4]]
    record[3] |= {"latency_us": 22.5, "bandwidth_gb_s": 0.0041}
    assert parsed(text(record)).table(PLANNED) == (
        "ranks  pods                                 latency (µs)  bandwidth (GB/s)\n"
        "0 - 2  job-workload-0-0 - job-workload-0-2          10.0              2.00\n"
        "2 - 4  job-workload-0-2 - job-workload-0-1          11.0              1.90\n"
        "4 - 0  job-workload-0-1 - job-workload-0-0          22.5            0.0041"
        "  low bandwidth, high latency\n"
    )


def test_json_has_the_figures() -> None:
    empty, values = (parsed(some).as_json(PLANNED) for some in ("", text(lines())))
    assert (empty["sum_right"], empty["finished"], empty["pairs"]) == (None, None, [])
    assert values["sum_right"] is True
    assert values["mapping"][5] == {"rank": 5, "planned_pod": NAMES[2], "node": "node-2"}
    assert values["pairs"][0] == {
        "ranks": [0, 2],
        "pods": NAMES[:2],
        "latency_us": 10.0,
        "bandwidth_gb_s": 2.0,
        "bytes": 1024,
    }


@pytest.mark.parametrize(
    ("pods", "slots", "pairs"),
    [
        (1, 1, []),
        (1, 2, [(0, 1)]),
        (1, 3, [(0, 1), (1, 2), (2, 0)]),
        (2, 4, [(0, 4)]),
        (4, 2, [(0, 2), (2, 4), (4, 6), (6, 0)]),
    ],
)
def test_neighbours(pods: int, slots: int, pairs: list[tuple[int, int]]) -> None:
    assert neighbours(pods, slots) == pairs

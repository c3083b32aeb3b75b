"""Reading and judging the record of the DDP test."""

from __future__ import annotations

from typing import Any

from agent.workloads.ddp import DdpRecord
from agent.workloads.rank_record import read_record
from tests.decide.rank_records import PLANNED, POD, Harm, Line, common, end, text, with_line

RANKS = 6


def lines() -> list[Line]:
    """The record of a run in which all is right."""
    speeds = [
        {"rank": r, "samples_per_s": 800.0 - r, "step_ms": 20.0 + r, "compute_ms": 10.0 + r % 4, "gradient_gb_s": 1.25}
        for r in range(RANKS)
    ]
    sizes = {"batch": 16, "steps": 5, "parameters": 1000, "gradient_bytes": 4000}
    return [
        *common("ddp"),
        {"step": "sum", "wrong": []},
        {"step": "doing", "what": "training step", "number": 1, "of": 5},
        {"step": "parameters", "different": []},
        {"step": "reference", "difference": 1.2e-7, "tolerance": 1e-5, "within": True, "steps": 5},
        {"step": "measured", "ranks": speeds, **sizes},
        end(),
    ]


def parsed(text: str) -> DdpRecord:
    return read_record(text, DdpRecord())


def of_sum(**wrong: Any) -> Harm:
    return with_line(2, wrong=[wrong])


DIFFERENT = with_line(4, different=[4])
WRONG: list[tuple[Harm, str]] = [
    (
        of_sum(rank=3, expected=15.0, found=14.0, elements=2),
        f"rank 3 on {POD}2 got a wrong all-reduce: 14, 15 is right (2 elements are wrong)",
    ),
    (of_sum(rank=0, expected=15.0, found="nan"), f"rank 0 on {POD}0 got a wrong all-reduce: nan, 15 is right"),
    (DIFFERENT, f"rank 4 on {POD}1 has other parameters after training than rank 0"),
    (
        with_line(5, difference=0.02, within=False),
        "after 5 steps the parameters differ from those of a single process by 2.0e-02 of their size, 1e-05",
    ),
    (with_line(5, difference=None, within=False), "after 5 steps of training, parameters are not finite numbers"),
    (lambda record: record.pop(4), "the record of the ranks has no check of the parameters"),
]
"""And how the only reason begins: tests/decide/test_rank_records.py."""


def test_of_many_wrong_sums_some_are_named() -> None:
    record = lines()
    record[2]["wrong"] = [{"rank": r % RANKS, "expected": 15.0, "found": 0.0} for r in range(1000)]
    reasons = parsed(text(record)).judge(PLANNED).reasons
    assert len(reasons) == 9 and reasons[-1] == "and 992 more like these"


def test_the_table_marks_the_rank_that_computes_slowest() -> None:
    """That of result.json, too."""
    record = parsed(text(lines()))
    shown = record.table(PLANNED).splitlines()
    assert shown[0].split("  ")[0] == "rank"
    assert [line.endswith("slowest compute") for line in shown[1:]] == [False, False, False, True, False, False]
    assert " ".join(shown[4].split()) == "3 job-workload-0-2 cpu 797.00 23.00 13.00 1.25 slowest compute"
    (one,) = record.tables(PLANNED)
    assert one.name == "ddp-ranks"
    assert [column.name for column in one.columns][:3] == ["rank", "pod", "device"]
    assert one.rows[3] == (3, "job-workload-0-2", "cpu", 797.0, 23.0, 13.0, 1.25, "slowest compute")


def test_the_summary_says_what_was_checked() -> None:
    """And nothing is shown of nothing."""
    nothing = parsed("")
    assert (nothing.table(PLANNED), nothing.tables(PLANNED)) == ("", [])
    assert nothing.summary() == "nothing was checked"
    assert nothing.as_json(PLANNED)["sum_right"] is None
    record = lines()
    assert parsed(text(record)).as_json(PLANNED)["reference"]["within"] is True
    assert parsed(text(record)).summary() == (
        "all-reduce right; parameters the same on all ranks; difference to one process 1.2e-07, within 1e-05"
    )
    DIFFERENT(record)
    assert "parameters DIFFERENT on rank 4" in parsed(text(record)).summary()

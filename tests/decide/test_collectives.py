"""Reading and judging the record and the tables of the collectives test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from agent.workloads.collectives import CollectivesRecord
from agent.workloads.rank_record import RecordVerdict, read_record
from agent.workloads.sweeps import Measured, MeasuredSweep, Row
from tests.decide.rank_records import PLANNED, Line, common, end, text

MIB = 1 << 20


def sweep(collective: str, wrong: int | None = 0) -> MeasuredSweep:
    """A whole table of two sizes, the larger one in place only; `wrong` elements there."""
    small = Measured(10.0, 1.0, 1.5, 0)
    rows = (
        Row(1024, 256, small, small._replace(busbw=1.25)),
        Row(MIB, MIB // 4, None, Measured(99.0, 2.0, 3.0, wrong)),
    )
    return MeasuredSweep(collective, 6, "gloo", "float", "sum", -1, 20, 5, rows, 1.9, 0, None)


SWEEPS = (sweep("all_reduce"), sweep("broadcast"))


def begin(collective: str) -> Line:
    return {"step": "sweep", "collective": collective, "type": "float", "redop": "sum", "root": -1} | {
        "iterations": 20,
        "warmup": 5,
    }


def lines() -> list[Line]:
    """The record of a run in which all is right."""
    doing = {"step": "doing", "what": "broadcast, 1 MiB", "number": 4, "of": 4}
    return [*common("collectives"), begin("all_reduce"), begin("broadcast"), doing, end()]


def parsed(text: str, sweeps: Sequence[MeasuredSweep] = SWEEPS) -> CollectivesRecord:
    return read_record(text, CollectivesRecord(sweeps=sweeps))


def judged(record: list[Line], sweeps: Sequence[MeasuredSweep] = SWEEPS) -> RecordVerdict:
    return parsed(text(record), sweeps).judge(PLANNED)


def table(*sweeps: MeasuredSweep) -> str:
    return CollectivesRecord(sweeps=sweeps).table(PLANNED)


LEFT_OUT = {"step": "left-out", "collective": "alltoall", "why": "gloo has none"}
WRONG = {"step": "wrong", "collective": "all_reduce", "size": MIB, "placement": "in-place", "ranks": {"3": 17, "0": 1}}


def test_wrong_elements_name_size_rank_and_pod() -> None:
    record = lines()
    record.insert(3, WRONG)
    for sweeps in (SWEEPS, (), (sweep("all_reduce", wrong=18),)):
        assert judged(record, sweeps) == RecordVerdict(
            65,
            [
                "all_reduce of 1 MiB, in-place, gave wrong elements "
                "(rank 0 on pod job-workload-0-0: 1; rank 3 on pod job-workload-0-2: 17)"
            ],
        )
    assert judged(record[:4], ()).code == 65, "also when it ends early"
    unknown = "all_reduce of 1 MiB, in-place, gave wrong elements, nobody said on which rank"
    assert judged(lines(), (sweep("all_reduce", 18), sweep("broadcast"))) == RecordVerdict(65, [unknown])
    assert judged(lines(), [sweep("all_reduce", None), sweep("broadcast")]).code == 0, "they are not checked"


@pytest.mark.parametrize(
    "sweeps",
    [
        SWEEPS[:1],
        (SWEEPS[0], replace(SWEEPS[1], average_busbw=None)),
        (SWEEPS[0], replace(SWEEPS[1], rows=())),
    ],
)
def test_a_table_that_is_not_whole_is_65_at_the_end_only(sweeps: Sequence[MeasuredSweep]) -> None:
    assert judged(lines(), sweeps) == RecordVerdict(65, ["the table of broadcast is missing or incomplete"])
    assert judged(lines()[:-1], sweeps) == RecordVerdict(None, ["the ranks stopped during: broadcast, 1 MiB (4 of 4)"])


def test_a_collective_that_was_begun_and_not_measured_is_65() -> None:
    missing = "the table of sendrecv is missing or incomplete"
    assert judged([*lines()[:-1], begin("sendrecv"), end()]) == RecordVerdict(65, [missing])


def test_a_collective_that_is_left_out_is_a_warning() -> None:
    record = lines()
    record.insert(2, LEFT_OUT)
    assert judged(record) == RecordVerdict(0, [])
    assert parsed(text(record)).warnings() == ["alltoall is left out: gloo has none"]


def test_nothing_measured_is_65() -> None:
    start, why = common("collectives"), "nothing was tested: alltoall is left out: gloo has none"
    assert judged([*start, LEFT_OUT, end()], ()) == RecordVerdict(65, [why])
    assert judged([*start, LEFT_OUT], ()).code is None
    assert judged([*start, end()], ()) == RecordVerdict(65, ["nothing was measured"])


def test_the_table_for_people() -> None:
    assert table(SWEEPS[0]) == (
        "collective  largest size  busbw there (GB/s)  best (GB/s)  placement  average (GB/s)  wrong\n"
        "all_reduce         1 MiB                3.00         3.00  in-place             1.90      0\n"
    )
    assert table() == ""
    assert table(sweep("broadcast", None)).splitlines()[1].endswith("  0"), "the small size was checked"
    assert table(replace(SWEEPS[0], rows=())) == "", "nothing was measured"
    assert CollectivesRecord(sweeps=SWEEPS).summary() == "best busbw: all_reduce 3.00 GB/s, broadcast 3.00 GB/s"
    assert CollectivesRecord().summary() == "nothing was measured"


def test_json_of_the_record() -> None:
    record = lines()
    record[3:3] = [LEFT_OUT, WRONG]
    values = parsed(text(record)).as_json(PLANNED)
    assert values["left_out"] == {"alltoall": "gloo has none"}
    assert values["wrong"][0]["ranks"] == {"3": 17, "0": 1}

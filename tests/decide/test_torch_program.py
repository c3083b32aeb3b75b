"""What the records of `ddp` and `collectives` have in common."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.words import at_most
from agent.workloads.ddp import DdpRecord
from agent.workloads.rank_record import DoingLine, PlannedRanks, read_record
from agent.workloads.torch_program import TorchRecord
from tests.decide.rank_records import NAMES, PLANNED, TOKENS, Line, common, end, move, stranger, text, unreadable


def parsed(record: list[Line]) -> TorchRecord:
    return read_record(text(record), TorchRecord())


DOING = {"step": "doing", "what": "all_reduce, 1 GiB", "number": 31, "of": 120}


def step(number: int, time: float) -> Line:
    return {"step": "doing", "what": "training step", "number": number, "of": 5, "time": time}


def test_what_is_known_of_a_run() -> None:
    record = parsed([*common("ddp"), DOING])
    assert (record.program, record.launched, record.backend) == ("ddp", 6, "gloo")
    assert record.versions == {"python": "3.11.7", "torch": "2.13.0+cpu"}
    assert record.phases == {"ranks-ready": 102.5}
    assert record.doing == DoingLine("all_reduce, 1 GiB", 31, 120)
    shown = record.as_json(PLANNED)
    assert shown["mapping"][5] == {"rank": 5, "planned_pod": NAMES[2], "node": "node-2", "device": "cpu"}
    assert not any(token in json.dumps(shown).split('"') for token in TOKENS)


def test_what_is_known_before_the_ranks_have_met() -> None:
    record = parsed(common("ddp")[:1])
    assert record.phases == {}
    assert record.stopped() == "6 ranks were started, but not all of them found each other"


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        ([], ""),
        ([DOING], "all_reduce, 1 GiB (31 of 120)"),
        ([{**DOING, "number": 1, "of": 1}], "all_reduce, 1 GiB"),
        ([DOING, end()], ""),
        ([DOING, {"step": "sum", "wrong": []}], ""),
        ([DOING, {**DOING, "number": 32}], "all_reduce, 1 GiB (32 of 120)"),
        ([step(1, 50.0)], "training step (1 of 5)"),
        ([DOING, step(1, 50.0), step(2, 51.0), step(4, 51.3)], "training step (4 of 5), 0.433 s each"),
        ([step(1, 50.0), step(2, 350.0)], "training step (2 of 5), 300 s each"),
        ([step(1, 50.0), step(2, 40.0)], "training step (2 of 5)"),
        ([step(4, 50.0), {**DOING, "time": 60.0}], "all_reduce, 1 GiB (31 of 120)"),
    ],
)
def test_progress(lines: list[Line], shown: str) -> None:
    assert parsed([*common("ddp"), *lines]).progress() == shown


@pytest.mark.parametrize("harm", ["garbage", "{}", "[]", '{"step": "new"}', '{"step": []}', '{"step": "end"}', "7"])
def test_a_damaged_line_is_kept_in_mind(harm: str) -> None:
    whole = text([*common("ddp"), end()]).split("\n")
    assert read_record("\n".join([*whole[:2], harm, *whole[2:]]), TorchRecord()).damaged == [3]


def test_a_last_line_that_is_cut_off_is_no_damage() -> None:
    record = read_record(text([*common("ddp"), end()])[:-2], TorchRecord())
    assert record.damaged == [] and record.finished is None


@given(st.text())
def test_any_text_can_be_parsed(garbage: str) -> None:
    assert read_record(garbage, TorchRecord()).finished is None


def too_few(record: list[Line]) -> None:
    record[0]["ranks"] = 4


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (move, "rank 5 runs on pod job-workload-0-2, the plan puts it on pod job-workload-0-1"),
        (stranger, "rank 0 runs on node node-0 in no pod of the plan, the plan puts it on pod job-workload-0-0"),
        (
            unreadable,
            "rank 4 could not read the token of its pod on node node-2: No such file, "
            "the plan puts it on pod job-workload-0-1",
        ),
        (too_few, "4 ranks ran, the plan has 6 (2 on each of 3 pods)"),
    ],
)
def test_wrong_places(harm: Any, reason: str) -> None:
    record = common("ddp")
    assert parsed(record).wrong(PLANNED) == []
    harm(record)
    assert parsed(record).wrong(PLANNED) == [reason]


@pytest.mark.parametrize(("pods", "slots"), [(1, 1), (1, 8), (3, 1), (2, 8)])
def test_clusters_of_other_sizes(pods: int, slots: int) -> None:
    assert parsed(common("ddp", pods, slots)).wrong(PlannedRanks(slots, NAMES[:pods], TOKENS[:pods])) == []


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        ({"version": 2}, "the record has version 2 of ddp, this a4-agent reads version 1 of ddp"),
        ({"program": "collectives"}, "the record has version 1 of collectives, this a4-agent reads version 1 of ddp"),
    ],
)
def test_records_of_others_are_no_verdict(start: Line, reason: str) -> None:
    record = common("ddp")
    record[0] |= start
    found = read_record(text(record), DdpRecord()).judge(PLANNED)
    assert found.code is None
    assert found.reasons[0].startswith(reason)


def test_many_findings_are_counted() -> None:
    assert at_most(["x"] * 8) == ["x"] * 8
    assert at_most(["x"] * 20) == ["x"] * 8 + ["and 12 more like these"]

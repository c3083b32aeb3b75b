"""What the records of rank programs have in common."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.words import at_most
from agent.workloads.rank_record import DoingLine, PlannedRanks, RecordVerdict, read_record
from agent.workloads.torch_program import TorchRecord
from tests.decide import test_collectives, test_connectivity, test_ddp
from tests.decide.rank_records import NAMES, PLANNED, POD, TOKENS, Harm, Line, common, end, text, with_line, with_rank
from tests.laws import examples


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


OF = pytest.mark.parametrize("of", [test_connectivity, test_ddp, test_collectives], ids=lambda one: one.__name__[18:])


def judged(of: Any, record: list[Line]) -> RecordVerdict:
    verdict: RecordVerdict = of.parsed(text(record)).judge(PLANNED)
    return verdict


@OF
def test_a_right_run_is_0_without_reasons_and_shows_no_token(of: Any) -> None:
    assert judged(of, of.lines()) == RecordVerdict(0, [])
    shown = json.dumps(of.parsed(text(of.lines())).as_json(PLANNED))
    assert not any(token in shown.split('"') for token in TOKENS)


@pytest.mark.parametrize(("pods", "slots"), [(1, 1), (1, 2), (1, 8), (2, 1), (2, 8), (3, 2)])
def test_clusters_of_other_sizes(pods: int, slots: int) -> None:
    planned = PlannedRanks(slots, NAMES[:pods], TOKENS[:pods])
    assert parsed(common("ddp", pods, slots)).wrong(planned) == []
    assert test_connectivity.parsed(text(test_connectivity.lines(pods, slots))).judge(planned) == RecordVerdict(0, [])


@OF
@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (with_rank(5, token=TOKENS[1]), f"rank 5 runs on {POD}2, the plan puts it on {POD}1"),
        (with_rank(0, token="dd"), f"rank 0 runs on node node-0 in no pod of the plan, the plan puts it on {POD}0"),
        (
            with_rank(4, token="", error="No such file"),
            f"rank 4 could not read the token of its pod on node node-2: No such file, the plan puts it on {POD}1",
        ),
        (with_line(0, ranks=4, world=4), "4 ranks ran, the plan has 6 (2 on each of 3 pods)"),
        (lambda record: record[-1]["finished"].remove(3), f"rank 3 on {POD}2 did not finish"),
    ],
)
def test_what_is_wrong_is_65_and_names_rank_and_pod(of: Any, harm: Harm, reason: str) -> None:
    record = of.lines()
    harm(record)
    assert judged(of, record) == RecordVerdict(65, [reason])
    if "did not finish" not in reason:
        assert judged(of, record[:2]).code == 65, "also when it ends early"


OWN = [(of, *wrong) for of in (test_connectivity, test_ddp) for wrong in of.WRONG]


@pytest.mark.parametrize(("of", "harm", "reason"), OWN)
def test_what_one_program_alone_can_find_wrong_is_65_too(of: Any, harm: Harm, reason: str) -> None:
    record = of.lines()
    harm(record)
    verdict = judged(of, record)
    assert (verdict.code, len(verdict.reasons)) == (65, 1) and verdict.reasons[0].startswith(reason)


@pytest.mark.parametrize(
    ("of", "start", "reason"),
    [
        (test_connectivity, {"version": 2}, "the record has version 2, this a4-agent reads version 1: "),
        (test_ddp, {"version": 2}, "the record has version 2 of ddp, this a4-agent reads version 1 of ddp: "),
        (test_ddp, {"program": "x"}, "the record has version 1 of x, this a4-agent reads version 1 of ddp: "),
        (test_collectives, {"program": "ddp"}, "the record has version 1 of ddp, this a4-agent reads version 1 of "),
    ],
)
def test_records_of_others_are_no_verdict(of: Any, start: Line, reason: str) -> None:
    record = of.lines()
    record[0] |= start
    found = judged(of, record)
    assert found.code is None and found.reasons[0].startswith(reason)


@OF
@pytest.mark.parametrize(
    "harm",
    ["garbage", "{}", "[]", "7", "1" * 5000, '{"step": "new"}', '{"step": "ranks"}', '{"step": "end"}', '{"step": []}'],
)
def test_a_damaged_line_is_never_success(of: Any, harm: str) -> None:
    whole = text(of.lines()).split("\n")
    record = of.parsed("\n".join([*whole[:3], harm, *whole[3:]]))
    assert record.damaged == [4]
    assert record.judge(PLANNED) == RecordVerdict(None, ["line 4 of the record of the ranks cannot be read"])


@OF
@given(st.data())
def test_a_cut_record_is_never_success_and_never_wrong(of: Any, data: st.DataObject) -> None:
    whole = text(of.lines())
    record = of.parsed(whole[: data.draw(st.integers(0, len(whole) - 1))])
    assert record.damaged == [] and record.judge(PLANNED).code is None


@OF
@examples(40)
@given(st.text())
def test_any_text_can_be_parsed(of: Any, garbage: str) -> None:
    assert of.parsed(garbage).judge(PLANNED).code is None


@pytest.mark.parametrize(
    ("reached", "reason"),
    [
        (0, "no rank reported: the record of the ranks is empty"),
        (1, "6 ranks were started, but not all of them found each other"),
        (3, "the ranks stopped before their end"),
        (4, "the ranks stopped during: training step (1 of 5)"),
    ],
)
def test_how_far_the_ranks_came(reached: int, reason: str) -> None:
    assert judged(test_ddp, test_ddp.lines()[:reached]) == RecordVerdict(None, [reason])


def test_many_findings_are_counted() -> None:
    assert at_most(["x"] * 8) == ["x"] * 8
    assert at_most(["x"] * 20) == ["x"] * 8 + ["and 12 more like these"]

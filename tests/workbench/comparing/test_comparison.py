"""Several runs side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.decide.pipeline import GitCheckout, Pipeline, Stage, StageCommand
from agent.decide.result import Result
from agent.decide.result_reader import read_result
from agent.launch import Started, packed
from agent.report.launched import command_text, stage_settings
from agent.workbench.comparing.compared_sweeps import Curve, ratios, summary
from agent.workbench.comparing.compared_tables import compared_tables
from agent.workbench.comparing.comparison import comparison_json, comparison_page
from agent.workbench.comparing.key_figures import key_figures
from agent.workbench.comparing.page import render_comparison
from tests.report.examples import EXAMPLES, collectives, compared, ddp, none, pod, result, sweep, table
from tests.report.test_model import texts

RESULTS = [read_result(data) for data in compared()]


def test_what_was_set_differently() -> None:
    found = {row[0]: row[1:] for row in texts(comparison_page(RESULTS).settings)}
    assert set(found) == {"arguments", "nodes in rank order", "version of nccl", "$NCCL_IB_TC"}
    assert found["version of nccl"] == ["2.28.9", "2.27.3", "2.28.9"]
    assert found["$NCCL_IB_TC"] == ["52", "52", "0"]


def test_a_profiler_is_a_difference_and_another_measurement() -> None:
    one, other = collectives(), collectives()
    for each in other["pods"]:
        each["inventory"]["nccl_profiler"] = "NCCL_TELEMETRY_MODE=3"
    results = [read_result(one), read_result(other)]
    assert texts(comparison_page(results).settings) == [["profiler of NCCL", "empty", "NCCL_TELEMETRY_MODE=3"]]
    assert not {figure.subject for figure in key_figures(results[0])} & {
        figure.subject for figure in key_figures(results[1])
    }


OLD = Path(__file__).parents[2] / "report" / "old"


def old(name: str) -> Result:
    return read_result(json.loads((OLD / f"{name}.json").read_text()))


def test_pipelines_are_compared_by_their_stages_and_options() -> None:
    results = [old("07f7a89-pai-megatron-qwen3"), old("07f7a89-pai-megatron-qwen3-next")]
    page = comparison_page(results)
    found = {row[0]: row[1:] for row in texts(page.settings)}
    assert (found["train: SEQ_LEN"], found["train: TP"]) == (["128", "1024"], ["4", "1"])
    assert found["convert: command"] == ["bash scripts/qwen3/run_8xH20.sh", "bash scripts/qwen3_next/run_8xH20.sh"]
    assert not {"command", "stages", "train: $NCCL_RAS_ADDR"} & found.keys()
    assert [row[0] for row in texts(page.tables[0])][:2] == ["environment", "clone"]
    assert "eNr" not in render_comparison(results)


def test_a_pipeline_that_cannot_be_read_is_left_out() -> None:
    results = [old("07f7a89-pai-megatron-qwen3"), old("f547943-pai-megatron-qwen3")]
    found = {row[0]: row[1:] for row in texts(comparison_page(results).settings)}
    assert found["command"][1].endswith("agent.lifecycle.stages …")
    assert not any(name.startswith("train: ") for name in found)
    rows = texts(comparison_page(results).tables[0])
    assert [row[2] for row in rows if row[0] == "train"] == ["–"]


def test_secrets_of_a_pipeline_are_hidden() -> None:
    command = StageCommand(["sh", "x"], [("HF_TOKEN", "hf_abcdef123")], {"API_KEY": "k-123456789"})
    checkout = GitCheckout("https://me:pass-word-9@git/x", "abc")
    stages = [Stage("clone", "lead", checkout), Stage("train", "together", command)]
    word = packed(Pipeline("r", 0, [0], stages))
    started = Started(("python", "-m", "agent.lifecycle.stages", word), "/", {}, ())
    shown = f"{command_text(started)} {stage_settings(started)}"
    assert "***" in shown and not any(one in shown for one in ("hf_abc", "k-123", "pass-word"))


def test_ids_of_the_run_do_not_differ() -> None:
    one, other = collectives(), collectives() | {"run": "collectives-000000", "epoch": "e1-of-another.0.1"}
    for at, each in enumerate(other["pods"]):
        each["name"] = f"night-2-workload-0-{at}.night-2.default.svc.cluster.local"
    for data in (one, other):
        data["launch"]["environment"]["A4_RUN"] = data["run"]
        data["launch"]["environment"]["A4_JOBSET_UID"] = data["epoch"].partition(".")[0]
        data["launch"]["environment"]["MASTER_ADDR"] = data["pods"][0]["name"]
        data["launch"]["environment"]["A4_RECORD"] = f"/run/{data['run']}/record.jsonl"
    page = comparison_page([read_result(one), read_result(other)])
    assert (page.settings, page.given) == (None, None)


def test_bandwidth_to_the_first_run() -> None:
    first = comparison_page(RESULTS).sweeps[0]
    assert first.name == "all_reduce"
    assert first.about[0] == "B / A: median 0.93× ▼, least 0.80× ▼ at 4 KiB, 0.93× ▼ at 8 GiB"
    assert [[line.label for line in picture.lines] for picture in first.pictures] == [["A", "B", "C"]] * 2
    first_row = RESULTS[0].sweeps[0].rows[0]
    assert first.pictures[1].lines[0].points[0][1] == first_row.placements()[0].time
    assert texts(first.grid)[-1][0] == "8 GiB"
    assert texts(first.grid)[-1][-2:] == ["0.93× ▼", "1.00×"]


def test_a_collective_that_one_run_has_not() -> None:
    found = {sweep.name: sweep for sweep in comparison_page(RESULTS).sweeps}
    assert found["alltoall"].about[1] == "C: not measured"
    assert texts(found["alltoall"].grid)[0][3] == "–"


def test_tables_in_common() -> None:
    (short, long) = comparison_page(RESULTS).tables
    assert texts(short) == [
        ["busy (%)", "A", "91.50", "93.00", "94.50", "1.00×"],
        ["busy (%)", "B", "90.50", "92.00", "93.50", "0.99×"],
        ["busy (%)", "C", "89.50", "91.00", "92.50", "0.98×"],
    ]
    assert texts(long)[0] == ["0", "91.50", "90.50", "89.50"]


@pytest.mark.parametrize(
    ("columns", "rows", "count"),
    [
        ([("rank", ""), ("x", "s")], [[0, 1.0], [2, 2.0]], 1),  # other rows: in short only
        ([("rank", ""), ("y", "s")], [[0, 1.0], [1, 2.0]], 0),  # another column
        ([("rank", ""), ("x", "ms")], [[0, 1.0], [1, 2.0]], 0),  # another unit
        ([("rank", ""), ("x", "s")], [[0, 1.0], [1, None]], 2),
        ([("rank", ""), ("x", "s")], [], 1),
    ],
)
def test_tables_that_are_alike(columns: list[tuple[str, str]], rows: list[list[float]], count: int) -> None:
    first = table("t", "T", [("rank", ""), ("x", "s")], [[0, 1.0], [1, 2.0]])
    results = [read_result(result("x", [pod(0)], tables=[one])) for one in (first, table("t", "T", columns, rows))]
    assert len(list(compared_tables(["A", "B"], results))) == count


def test_runs_that_have_nothing_in_common() -> None:
    page = comparison_page([read_result(ddp()), read_result(none())])
    assert page.title == "2 runs: 2 passed"
    assert (page.sweeps, page.tables) == ((), ())
    assert ["workload", "ddp", "none"] in texts(page.settings)


def test_a_first_run_without_bandwidth() -> None:
    data = [ddp(), ddp() | {"sweeps": [sweep("all_reduce", rows=[])]}, collectives()]
    found = comparison_page([read_result(one) for one in data]).sweeps
    assert found[0].about == ("B: not measured", "C / A: not measured in A")


def test_wrong_results_are_crossed_and_get_no_ratio() -> None:
    first = comparison_page(RESULTS).sweeps[0]
    assert first.about[1] == "C: ✗ wrong results at 2 of 24 sizes: 16 MiB, 128 MiB"
    assert [line.wrong for line in first.pictures[0].lines] == [frozenset(), frozenset(), {2**24, 2**27}]
    row = {row[0]: row for row in texts(first.grid)}["16 MiB"]
    assert (row[3][:2], row[5]) == ("✗ ", "–")


GOOD = {8: 1.0, 16: 2.0}
A_TO_C = [
    (Curve(GOOD), Curve({8: 1.0, 16: 1.0}), "B / A: median 0.75× ▼, least 0.50× ▼ at 16 B"),
    (Curve(GOOD), Curve({32: 1.0}), "B / A: no size in common"),
    (Curve(GOOD), Curve(), "B: not measured"),
    (Curve(), Curve(GOOD), "B / A: not measured in A"),
    (Curve(GOOD), Curve(GOOD, frozenset([8])), "B: ✗ wrong results at 1 of 2 sizes: 8 B"),
    (Curve(GOOD, frozenset([8])), Curve(GOOD), "B / A: no ratio, A gave wrong results"),
]


@pytest.mark.parametrize(("first", "other", "line"), A_TO_C)
def test_what_is_said_of_a_run_beside_the_first(first: Curve, other: Curve, line: str) -> None:
    assert summary(["A", "B"], [first, other])[-1] == line


def test_no_ratio_where_either_is_wrong() -> None:
    assert ratios([Curve(GOOD, frozenset([8])), Curve(GOOD)], 1) == {16: 1.0}
    assert ratios([Curve(GOOD), Curve(GOOD, frozenset([16]))], 1) == {8: 1.0}


def test_names_and_notes() -> None:
    results = [read_result(ddp() | {"name": "nightly", "note": "new driver"}), read_result(ddp())]
    first, second = comparison_page(results).runs
    assert (first.called, second.called) == ("nightly", "ddp --steps 50")
    assert first.facts[0] == ("note", "new driver")
    assert [(run["name"], run["note"]) for run in comparison_json(results)["runs"]] == [
        ("nightly", "new driver"),
        ("", ""),
    ]


def test_json() -> None:
    found = json.loads(json.dumps(comparison_json(RESULTS)))
    assert [run["run"] for run in found["runs"]] == [one.run for one in RESULTS]
    assert found["settings"]["version of nccl"] == ["2.28.9", "2.27.3", "2.28.9"]
    last = found["busbw"]["all_reduce"][-1]
    assert last["size"] == 2**33
    assert last["ratio"][0] == 1.0
    assert last["ratio"][1] == pytest.approx(352 / 380, rel=0.01)
    assert found["busbw"]["alltoall"][0]["busbw"][2] is None
    crossed = next(row for row in found["busbw"]["all_reduce"] if row["size"] == 2**24)
    assert (crossed["wrong"], crossed["ratio"][2]) == ([False, False, True], None)
    assert found["busbw"]["alltoall"][0]["wrong"] == [False, False, None]


def test_every_example_beside_another() -> None:
    for make in EXAMPLES.values():
        results = [read_result(make()), RESULTS[0]]
        assert comparison_page(results).runs[0].label == "A"
        json.dumps(comparison_json(results))

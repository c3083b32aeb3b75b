"""Several runs side by side."""

from __future__ import annotations

import json

import pytest

from agent.report.compared_tables import compared_tables
from agent.report.comparison import comparison_json, comparison_page, labels_of
from agent.report.reading import read_result
from tests.report.examples import EXAMPLES, collectives, compared, ddp, none, pod, result, sweep, table
from tests.report.test_model import texts

RESULTS = [read_result(data) for data in compared()]


def test_what_was_set_differently() -> None:
    found = {row[0]: row[1:] for row in texts(comparison_page(RESULTS).settings)}
    assert set(found) == {"arguments", "nodes in rank order", "version of nccl", "$NCCL_IB_TC"}
    assert found["version of nccl"] == ["2.28.9", "2.27.3", "2.28.9"]
    assert found["$NCCL_IB_TC"] == ["52", "52", "0"]


def test_ids_of_the_run_do_not_differ() -> None:
    one, other = collectives(), collectives() | {"run": "collectives-000000"}
    for data in (one, other):
        data["launch"]["environment"]["A4_RUN"] = data["run"]
        data["launch"]["environment"]["A4_RECORD"] = f"/run/{data['run']}/record.jsonl"
    page = comparison_page([read_result(one), read_result(other)])
    assert (page.settings, page.given) == (None, None)


def test_bandwidth_to_the_first_run() -> None:
    first = comparison_page(RESULTS).sweeps[0]
    assert first.name == "all_reduce"
    assert first.about[0] == "B / A: median 0.93× ▼, least 0.80× ▼ at 4 KiB, 0.93× ▼ at 8 GiB"
    assert [line.label for line in first.pictures[0].lines] == ["A", "B", "C"]
    assert texts(first.grid)[-1][0] == "8 GiB"
    assert texts(first.grid)[-1][-2:] == ["0.93× ▼", "1.00×"]


def test_a_collective_that_one_run_has_not() -> None:
    found = {sweep.name: sweep for sweep in comparison_page(RESULTS).sweeps}
    assert found["alltoall"].about[1] == "C / A: no size in common"
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
    assert found[0].about == ("B / A: no size in common", "C / A: no size in common")


def test_labels() -> None:
    assert labels_of(28)[24:] == ["Y", "Z", "27", "28"]


def test_json() -> None:
    found = json.loads(json.dumps(comparison_json(RESULTS)))
    assert [run["run"] for run in found["runs"]] == [one.run for one in RESULTS]
    assert found["settings"]["version of nccl"] == ["2.28.9", "2.27.3", "2.28.9"]
    last = found["busbw"]["all_reduce"][-1]
    assert last["size"] == 2**33
    assert last["ratio"][0] == 1.0
    assert last["ratio"][1] == pytest.approx(352 / 380, rel=0.01)
    assert found["busbw"]["alltoall"][0]["busbw"][2] is None


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_beside_every_other(name: str) -> None:
    results = [read_result(EXAMPLES[name]()), RESULTS[0]]
    assert comparison_page(results).runs[0].label == "A"
    json.dumps(comparison_json(results))

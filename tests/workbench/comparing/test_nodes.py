"""Nodes over several runs: a count, and no verdict."""

from __future__ import annotations

from typing import Any

from agent.decide.result import Result
from agent.decide.result_reader import read_result
from agent.report.heat import heat_maps
from agent.report.page import render_run
from agent.workbench.comparing.key_figures import key_figures
from agent.workbench.comparing.nodes import nodes_grid
from agent.workbench.comparing.page import render_comparison, render_series
from tests.report.examples import NOON, pod, result, sweep, table

COLUMNS = [("pod", ""), ("node", ""), ("pairs", ""), ("MB/s", "MB/s"), ("of usual", "%"), ("state", "")]


def searched(day: float, *shares: float | None, **changes: Any) -> Result:
    """A run of find-slow."""
    rows = [[at, f"gke-{at}", 4, 100.0, share, "slow" if share == 60 else "ok"] for at, share in enumerate(shares)]
    pods = [pod(at, node=f"gke-{at}") for at in range(len(shares))]
    found = result("find-slow", pods, tables=[table("find-slow-pods", "T", COLUMNS, rows)])
    return read_result(found | {"since": NOON + 86400 * day} | changes)


def trained(day: float, peak: float, *nodes: int) -> Result:
    pods = [pod(at, node=f"gke-{node}") for at, node in enumerate(nodes)]
    return read_result(result("nccl", pods) | {"since": NOON + 86400 * day, "sweeps": [sweep("all_reduce", 16, peak)]})


RUNS = [
    searched(0, 100.0, 97.0, None),
    searched(1, 99.0, 60.0, 98.0),
    trained(2, 380.0, 0, 2),
    trained(3, 381.0, 0, 2),
    trained(4, 300.0, 1, 2),
]


def test_each_node_by_run_and_how_often_it_was_in_a_slower_one() -> None:
    found = nodes_grid("ABCDE", RUNS, [key_figures(one) for one in RUNS])
    assert found is not None and [one.name for one in found.columns] == [
        "node",
        "A",
        "B",
        "best other run",
        "in slower runs",
    ]
    assert [[cell.text for cell in row] for row in found.groups[0].rows] == [
        ["gke-1", "97", "✗ 60", "79", "1 of 1"],
        ["gke-2", "–", "98", "100", "1 of 3"],
        ["gke-0", "100", "99", "100", "0 of 2"],
    ]


def test_a_node_that_its_run_calls_ok_has_no_cross() -> None:
    runs = [searched(day, 100.0, 66.0, 98.0) for day in range(2)]
    found = nodes_grid("AB", runs, [key_figures(one) for one in runs])
    assert found is not None and [row[1].text for row in found.groups[0].rows] == ["66", "98", "100"]


PAIRS = [(0, 1), (2, 3), (0, 2), (1, 4), (3, 4), (0, 3), (1, 3), (2, 4), (1, 0)]
"""Nodes of nine sweeps: 1 is in four of them."""


def test_sweeps_on_other_nodes_each_show_the_node_that_makes_them_slow() -> None:
    runs = [trained(day, 300.0 if 1 in pair else 380.0 + day / 10, *pair) for day, pair in enumerate(PAIRS)]
    found = nodes_grid("ABCDEFGHI", runs, [key_figures(one) for one in runs])
    rows = [[cell.text for cell in row] for row in found.groups[0].rows] if found else []
    assert rows[0] == ["gke-1", "✗ 79", "4 of 4"]
    assert [row[1][0] for row in rows[1:]].count("✗") == 0 and len(rows) == 5


def test_where_all_runs_had_the_same_nodes_none_is_told_from_others() -> None:
    runs = [trained(day, 300.0 + day, 0, 1) for day in range(5)]
    assert nodes_grid("ABCDE", runs, [key_figures(one) for one in runs]) is None


def test_two_runs_tell_nothing_of_their_nodes() -> None:
    assert nodes_grid("AB", RUNS[2:4], [key_figures(one) for one in RUNS[2:4]]) is None


def test_the_pages_show_it() -> None:
    assert "in slower runs" in render_series(RUNS, []) and "in slower runs" in render_comparison(RUNS[:2])


def test_pairs_of_pods_have_a_map_for_each_rail() -> None:
    """The median of a pair's rounds; a time-out is 0."""
    rows = [
        {"round": number, "pods": pair, "rail": rail, "MB/s": None if rail and pair == [2, 0] else 10.0 * number}
        for number, pair in ((1, [0, 1]), (2, [2, 0]), (3, [0, 1]))
        for rail in (0, 1)
    ]
    run = searched(0, 100.0, 100.0, 100.0, record={"pairs": rows})
    first, second = heat_maps(run)
    assert [one.name for one in (first, second)] == ["speed on rail 0 between pods", "speed on rail 1 between pods"]
    assert [(cell.row, cell.column, cell.text) for cell in first.cells] == [(0, 1, "20.00"), (0, 2, "20.00")]
    assert [cell.odd for cell in second.cells] == [False, True]
    assert "Speed on rail 1 between pods" in render_run(run)
    assert heat_maps(searched(0, 1.0, 1.0, record={"pairs": [{"pods": [7]}]})) == ()

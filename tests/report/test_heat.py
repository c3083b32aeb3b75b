"""Maps of what was measured between neighbours: those pairs and no others."""

from __future__ import annotations

from typing import Any

import pytest

from agent.decide.result_reader import read_result
from agent.report.heat import HeatMap, heat_maps
from agent.report.page import render_run
from tests.report.examples import Json, connectivity, ddp, pod, result, table


def maps(data: Json) -> tuple[HeatMap, ...]:
    return heat_maps(read_result(data))


def test_a_ring_has_a_cell_for_each_pair_that_was_measured() -> None:
    bandwidth, latency = maps(connectivity())
    assert (bandwidth.axis, bandwidth.labels) == ("rank", ("0", "8", "16", "24"))
    for one in (bandwidth, latency):
        assert [(cell.row, cell.column) for cell in one.cells] == [(0, 1), (1, 2), (2, 3), (3, 0)]
    assert [cell.text for cell in bandwidth.cells] == ["46.50", "12.00", "44.50", "43.50"]
    assert bandwidth.about == (
        "4 of 6 pairs were measured; the other cells are empty",
        "✗ beyond half the median: ranks 8 and 16: 12.00 GB/s",
    )
    assert latency.about[1:] == ("✗ beyond twice the median: ranks 24 and 0: 61.50 µs",)
    assert [cell.odd for cell in latency.cells] == [False, False, False, True]
    assert render_run(read_result(connectivity())).count("<title>ranks ") == 8


def test_the_greatest_value_is_the_strongest_and_the_rest_in_proportion() -> None:
    bandwidth, _ = maps(connectivity())
    greatest, slow = bandwidth.cells[0].opacity, bandwidth.cells[1].opacity
    assert (greatest, bandwidth.greatest) == (bandwidth.scale[-1], "46.50 GB/s")
    none = bandwidth.scale[0]
    assert (slow - none) / (greatest - none) == pytest.approx(12.0 / 46.5, abs=0.01)


def test_of_more_ranks_than_64_it_shows_pods_in_their_order() -> None:
    data = connectivity(9)
    data["pods"] = [data["pods"][at] for at in (0, 5, 1, 2, 3, 4, 6, 7, 8)]
    bandwidth, _ = maps(data)
    assert (bandwidth.axis, bandwidth.labels[:3]) == ("pod", ("0", "5", "1"))
    assert bandwidth.cells[1].words == "pods 5 and 1: 12.00 GB/s"
    assert {cell.text for cell in bandwidth.cells} == {""}  # the cells are too small


def test_many_pods_have_few_labels() -> None:
    (bandwidth, _) = maps(connectivity(64))
    assert [label for label in bandwidth.labels if label] == [str(at) for at in range(0, 64, 4)]


def pairs(*rows: list[Any], columns: tuple[str, ...] = ("ranks", "latency", "bandwidth")) -> Json:
    found = table("pairs", "T", [(name, "") for name in columns], rows)
    return result("connectivity", [pod(index) for index in range(4)], tables=[found])


RING = [["0 - 8", 1.0, 2.0], ["8 - 16", 1.0, 2.0], ["16 - 0", 1.0, 2.0]]
NOTHING = {
    "no table": ddp(),
    "one pair": connectivity(2),
    "too many": connectivity(257),
    "no rows": pairs(),
    "another column": pairs(*RING, columns=("ranks", "latency", "speed")),
    "no ranks": pairs(["a - b", 1.0, 2.0], *RING),
    "no number": pairs(["0 - 24", None, 2.0], *RING),
    "no finite number": pairs(["0 - 24", 1.0, float("inf")], *RING),
    "no such rank": connectivity(12) | {"pods": [pod(index) for index in range(9)]},
}


@pytest.mark.parametrize("data", NOTHING.values(), ids=NOTHING.keys())
def test_no_map_rather_than_a_guess(data: Json) -> None:
    assert maps(data) == ()


def test_what_took_no_time() -> None:
    (bandwidth, _) = maps(pairs(*[[ranks, 0.0, 0.0] for ranks, *_ in RING]))
    assert {cell.opacity for cell in bandwidth.cells} == {bandwidth.scale[0]}

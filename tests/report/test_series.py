"""Series of a program on the page of its run, and beside those of other runs."""

from __future__ import annotations

from typing import Any

from agent.decide.result_reader import read_result
from agent.report.grid import View
from agent.workbench.comparing.comparison import comparison_page
from tests.report.examples import curve, logged, pod, result, series
from tests.report.test_model import page, texts


def found() -> View:
    view: View | None = page(logged()).series
    assert view
    return view


def test_each_series_in_one_line() -> None:
    rows = {row[0]: row[1:] for row in texts(found().grid)}
    assert rows["reward"] == [
        *("", "-3.000", "0.75", "-4.000", "0.75", "0 to 30", "16", "✗ 4, first at step 0", "4 ranks on 1 pod")
    ]
    assert rows["tokens"][0] == "1/s" and rows["tokens"][-1] == "2 pods"
    assert rows["grad norm"][-1] == "64 ranks on 8 pods"
    assert rows["lost"][:5] == ["", "–", "–", "–", "–"]


def test_the_curves() -> None:
    lines = {picture.title: picture.lines for picture in found().pictures}
    assert [line.label for line in lines["reward"]] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    assert lines["reward"][1].points == [(0, -3.0), (20, -2.0), (30, 0.25)] and lines["reward"][1].wrong == {10}
    assert [line.label for line in lines["tokens (1/s)"]] == ["pod 0", "pod 1"]
    assert [(line.label, line.style) for line in lines["grad norm"]] == [("median", 0), ("least", -1), ("greatest", -1)]
    assert lines["loss"][0].points[0] == (0, 10.0), "a program may count from 0"


def of(*given: Any) -> Any:
    return read_result(result("torchrun", [pod(0)], series=list(given)))


def test_a_step_that_only_one_rank_kept_is_no_spike() -> None:
    """Where ranks kept no step in common, the one with the most stands for them."""
    slow, fast = curve([5.0, 5.0, 5.0, 5.0], rank=0), curve([5.0, 9.0, 9.0, 9.0], rank=1)
    lone = slow | {"steps": [0, 10, 15, 30]}
    apart = fast | {"steps": [1, 11, 21, 31]}
    results = [of(series("x", slow, fast)), of(series("x", lone, fast)), of(series("x", lone, apart))]
    (view,) = comparison_page(results).series
    assert [line.points for line in view.pictures[0].lines] == [
        [(0, 5.0), (10, 7.0), (20, 7.0), (30, 7.0)],
        [(0, 5.0), (10, 7.0), (30, 7.0)],
        [(0, 5.0), (10, 5.0), (15, 5.0), (30, 5.0)],
    ]


def test_runs_side_by_side() -> None:
    ranks = [curve([8.0, 2.0 + rank], rank=rank) for rank in range(3)]
    spread = [curve([middle], of=name, rank=None, pod=None) for name, middle in (("median", 7.0), ("least", 6.0))]
    results = [
        of(series("loss", *ranks, last=3.0), series("own", curve([1.0]))),
        of(series("loss", curve([9.0, 4.5]))),
        of(series("loss", *spread, last=None), series("other", curve([1.0]))),
        of(),
    ]
    (view,) = comparison_page(results).series
    assert [(line.label, line.style, line.points) for line in view.pictures[0].lines] == [
        ("A", 0, [(0, 8.0), (10, 3.0)]),
        ("B", 1, [(0, 9.0), (10, 4.5)]),
        ("C", 2, [(0, 7.0)]),
    ]
    assert [row[:2] for row in texts(view.grid)] == [["A", "1.00×"], ["B", "1.50× ▲"], ["C", "–"], ["D", "–"]]

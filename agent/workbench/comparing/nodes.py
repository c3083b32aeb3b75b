"""Nodes over several runs: how fast each was where nodes were compared, and how often it was in a run that was slow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from agent.decide.result import Result
from agent.report.grid import Cell, Grid, GridColumn, grid, number
from agent.report.number_words import NONE
from agent.workbench.comparing.key_figures import KeyFigure, trends_of
from agent.workloads import shown

MOST_RUNS = 8
"""Runs that compared nodes and have a column, the latest."""
LEAST_RUNS = 3
"""A median of fewer runs says nothing about one of them."""


def nodes_grid(labels: Sequence[str], results: Sequence[Result], figures: Sequence[Sequence[KeyFigure]]) -> Grid | None:
    """A line for each node, the slowest first; None where no run compared nodes. `figures`: of each result."""
    found = [(at, of_run) for at, one in enumerate(results) if (of_run := shown(one).nodes)]
    if not found:
        return None
    latest = sorted(found, key=lambda each: results[each[0]].since)[-MOST_RUNS:]
    slower, compared = _slower_runs(figures)
    columns = [GridColumn("node"), *(number(labels[at], "%") for at, _ in latest), number("in slower runs")]
    nodes = {node for _, one in latest for node in one.shares}
    least = {node: min(one.shares.get(node, math.inf) for _, one in latest) for node in nodes}
    rows: list[list[Cell | str]] = []
    for node in sorted(least, key=lambda node: (least[node], node)):
        of_node = [at for at in compared if node in {pod.node for pod in results[at].pods}]
        count = f"{sum(at in slower for at in of_node)} of {len(of_node)}" if of_node else NONE
        rows.append([node, *(_cell(one.shares.get(node), one.low) for _, one in latest), count])
    how = dict.fromkeys(f"{one.about}; ✗ below {one.low:.0f} %" for _, one in latest)
    note = (
        f"Per cent: {'; '.join(how)}. In slower runs: of the other runs with this node, where at least three measured "
        "the same, those below their median. It counts, and judges nobody."
    )
    return grid("Nodes", columns, rows, note=note)


def _slower_runs(figures: Sequence[Sequence[KeyFigure]]) -> tuple[set[int], list[int]]:
    """Runs whose most telling number is worse than the median of those that measured the same, and all of these."""
    slower, compared = set[int](), list[int]()
    for one in trends_of([[figure for figure in found[:1] if not figure.wrong] for found in figures]):
        if len(one.points) >= LEAST_RUNS:
            middle = median(one.good)
            compared += [at for at, _ in one.points]
            slower |= {at for at, figure in one.points if one.subject.is_worse(figure.value, middle)}
    return slower, compared


def _cell(share: float | None, low: float) -> Cell:
    if share is None:
        return Cell(NONE, "soft")
    return Cell(f"✗ {share:.0f}", "bad") if share < low else Cell(f"{share:.0f}")

"""Nodes over several runs: how fast each was where nodes were compared, and how often it was in a run that was slow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from agent.decide.result import Result
from agent.report.grid import Cell, Grid, GridColumn, grid, number
from agent.report.number_words import NONE
from agent.workbench.comparing.key_figures import KeyFigure, trends_of
from agent.workloads import shown

MOST_RUNS = 8
"""Runs that compared nodes and have a column, the latest."""
SCATTERS = 4.5
"""Median distances from the median: three standard deviations of nodes that scatter normally."""
LEAST_CHANGE = 0.05
LEAST_RUNS = 3
"""A median of fewer runs says nothing about one of them."""


def nodes_grid(labels: Sequence[str], results: Sequence[Result], figures: Sequence[Sequence[KeyFigure]]) -> Grid | None:
    """A line for each node, the slowest first; None where no run compared nodes, nor runs of the same measurement had
    other nodes each. `figures`: of each result."""
    found = [(at, of_run) for at, one in enumerate(results) if (of_run := shown(one).nodes)]
    shares = _shares(results, figures)
    if not found and len(set(map(tuple, shares.values()))) < 2:
        return None
    latest = sorted(found, key=lambda each: results[each[0]].since)[-MOST_RUNS:]
    columns = [GridColumn("node"), *(number(labels[at], "%") for at, _ in latest)]
    columns += [number("best other run", "%"), number("in slower runs")]
    best = {node: max(of_node.values()) for node, of_node in shares.items()}
    nodes = {node for _, one in latest for node in one.shares} | (set() if found else best.keys())
    least = {node: min([one.shares[node] for _, one in latest if node in one.shares] or [math.inf]) for node in nodes}
    rows: list[list[Cell | str]] = []
    for node in sorted(nodes, key=lambda node: (least[node], best.get(node, math.inf), node)):
        of_node = shares.get(node, {})
        count = f"{sum(share < 100 for share in of_node.values())} of {len(of_node)}" if of_node else NONE
        low = len(of_node) >= LEAST_RUNS and _is_low(node, best)
        rows.append(
            [
                node,
                *(_cell(one.shares.get(node), -math.inf if node in one.cleared else one.low) for _, one in latest),
                _cell(best.get(node), math.inf if low else -math.inf),
                count,
            ]
        )
    how = dict.fromkeys(f"{one.about}; ✗ below {one.low:.0f} %, unless that run calls it ok" for _, one in latest)
    about = f"Per cent: {'; '.join(how)}. " if how else ""
    note = (
        f"{about}Best other run: in per cent of the median of all that measured the same, three at least; ✗ 5 % worse "
        "or more than those of the other nodes, and beyond their scatter. In slower runs: those below 100 %. All nodes "
        "of a run have its number: a node that is slow has no good run."
    )
    return grid("Nodes", columns, rows, note=note)


def _shares(results: Sequence[Result], figures: Sequence[Sequence[KeyFigure]]) -> dict[str, dict[int, float]]:
    """Node → run → its most telling number in per cent of the median of the runs that measured the same, 90 for worse
    by a tenth."""
    found: dict[str, dict[int, float]] = {}
    for one in trends_of([[figure for figure in of_run[:1] if not figure.wrong] for of_run in figures]):
        middle = median(one.good)
        if len(one.points) < LEAST_RUNS or middle <= 0:
            continue
        for at, figure in one.points:
            ratio = figure.value / middle
            share = 100 * (1 / ratio if one.subject.lower and ratio > 0 else ratio)
            for node in {pod.node for pod in results[at].pods if pod.node}:
                found.setdefault(node, {})[at] = share
    return found


def _is_low(node: str, best: Mapping[str, float]) -> bool:
    """Whether even its best run is worse than those of the other nodes, by more than these scatter."""
    others = [share for other, share in best.items() if other != node]
    if len(others) < LEAST_RUNS - 1:
        return False
    usual = median(others)
    scatter = median(abs(one - usual) for one in others)
    return best[node] <= usual * (1 - LEAST_CHANGE) and usual - best[node] > SCATTERS * scatter


def _cell(share: float | None, low: float) -> Cell:
    if share is None:
        return Cell(NONE, "soft")
    return Cell(f"✗ {share:.0f}", "bad") if share < low else Cell(f"{share:.0f}")

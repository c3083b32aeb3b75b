"""Nodes over several runs: what find-slow measured of each, and how often each was in a run that was slow."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from agent.decide.result import Result
from agent.report.grid import Cell, Grid, GridColumn, below, grid, number
from agent.report.number_words import NONE
from agent.workbench.comparing.key_figures import KeyFigure, trends_of

TABLE = "find-slow-pods"
MOST_RUNS = 8
"""Runs of find-slow that have a column, the latest."""
LEAST_RUNS = 3
"""A median of fewer runs says nothing about one of them."""
LOW = 88.0
"""Percent of the usual speed, below which find-slow calls a pair low."""


def nodes_grid(labels: Sequence[str], results: Sequence[Result], figures: Sequence[Sequence[KeyFigure]]) -> Grid | None:
    """A line for each node, the slowest first; None without a run of find-slow. `figures`: of each result."""
    shares = {at: found for at, one in enumerate(results) if (found := _shares(one))}
    if not shares:
        return None
    shown = sorted(shares, key=lambda at: results[at].since)[-MOST_RUNS:]
    slower, compared = _slower_runs(figures)
    columns = [GridColumn("node"), *(number(labels[at], "%") for at in shown), number("in slower runs")]
    nodes = {node for at in shown for node in shares[at]}
    rows: list[list[Cell | str]] = []
    for node in sorted(nodes, key=lambda node: (min(shares[at][node] for at in shown if node in shares[at]), node)):
        of_node = [at for at in compared if node in {pod.node for pod in results[at].pods}]
        count = f"{sum(at in slower for at in of_node)} of {len(of_node)}" if of_node else NONE
        rows.append([node, *(_cell(shares[at].get(node)) for at in shown), count])
    note = (
        "Per cent: a node's median speed in a run of find-slow against pairs that are as far apart, on its slowest "
        "rail; ✗ below 88 %. In slower runs: of the other runs with this node, where at least three measured the same, "
        "those below their median. It counts, and judges nobody."
    )
    return grid("Nodes", columns, rows, note=note)


def _shares(result: Result) -> dict[str, float]:
    """Node → per cent of the usual speed; the least of its pods."""
    found: dict[str, float] = {}
    for table in result.tables:
        if table.name == TABLE:
            for node, share in zip(below(table, "node"), below(table, "of usual"), strict=False):
                if isinstance(share, (int, float)) and not isinstance(share, bool):
                    found[str(node)] = min(share, found.get(str(node), share))
    return found


def _slower_runs(figures: Sequence[Sequence[KeyFigure]]) -> tuple[set[int], list[int]]:
    """Runs whose most telling number is worse than the median of those that measured the same, and all of these."""
    slower, compared = set[int](), list[int]()
    for one in trends_of([[figure for figure in found[:1] if not figure.wrong] for found in figures]):
        if len(one.points) >= LEAST_RUNS:
            middle = median(one.good)
            compared += [at for at, _ in one.points]
            slower |= {at for at, figure in one.points if one.subject.is_worse(figure.value, middle)}
    return slower, compared


def _cell(share: float | None) -> Cell:
    if share is None:
        return Cell(NONE, "soft")
    return Cell(f"✗ {share:.0f}", "bad") if share < LOW else Cell(f"{share:.0f}")

"""Many runs on one page: a line for each, and how what they measured went over time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median
from types import SimpleNamespace

from agent.decide.result import Result
from agent.decide.words import at_most
from agent.report.charts import Line, Picture, Scale
from agent.report.grid import Cell, Grid, GridColumn, RowGroup, View, cells, code, grid, number
from agent.report.model import SIGNS, called
from agent.report.number_words import NONE, count_text, moment_text
from agent.report.ticks import LATEST, span_text
from agent.workbench.comparing.comparison import title_of
from agent.workbench.comparing.first_worse import changes, first_worse
from agent.workbench.comparing.key_figures import KeyFigure, Trend, key_figures, trends_of
from agent.workbench.comparing.nodes import nodes_grid

MOST_TRENDS = 60
"""Charts of one page; the table has a line for each trend."""
SCATTERS = 4.5
"""Median distances from the median: three standard deviations of values that scatter normally."""


def series_page(results: Sequence[Result], unread: Sequence[str]) -> SimpleNamespace:
    """All that the page shows of these results, which keep their order, and of what could not be read (`unread`).
    `nodes` is None where no run compared nodes."""
    figures = [key_figures(one) for one in results]
    trends = trends_of(figures)
    several = [one for one in trends if len(one.points) > 1]  # one run has no trend
    most = sorted(several, key=lambda one: -len(one.points))[:MOST_TRENDS]
    drawn = [one for one in several if one in most]
    cut = f"The {len(drawn)} of {len(several)} measurements that most runs have; the table above has all."
    return SimpleNamespace(
        title=title_of(results),
        span=_span([one.since for one in results]),
        runs=_runs(results, figures),
        overview=_overview(results, trends) if trends else None,
        nodes=nodes_grid([f"no. {at}" for at in range(1, len(results) + 1)], results, figures),
        worse=_worse_lines(trends, results),
        trends=tuple(_view(at, one, results) for at, one in enumerate(drawn, 1)),
        cut=cut if len(drawn) < len(several) else "",
        unread=unread,
    )


def _worse_lines(trends: Sequence[Trend], results: Sequence[Result]) -> list[str]:
    """What is worse since which run, a line for each run."""
    found: dict[int, list[str]] = {}
    for one in trends:
        if worse := first_worse(one, results):
            found.setdefault(worse.run, []).append(one.subject.name)
    return [
        f"Worse ▼ since no. {run + 1}, {called(results[run])}: {'; '.join(at_most(names, 6, 'and {} more'))}"
        for run, names in sorted(found.items())
    ]


def _span(moments: Iterable[float]) -> str:
    known = [moment for moment in moments if _can_be_drawn(moment)]
    return span_text(min(known), max(known)) if known else ""


def _can_be_drawn(moment: float) -> bool:
    return 0 < moment < LATEST


def _runs(results: Sequence[Result], figures: Sequence[Sequence[KeyFigure]]) -> Grid:
    """A line for each run, what people look for first on the left."""
    names = ("run", "measured", "verdict", "began", "pods × slots", "note", "why")
    columns = [number("no."), *map(GridColumn, names), code("id")]
    rows: list[list[Cell | str]] = [
        [
            str(at),
            called(one),
            _measured(figures[at - 1]),
            _verdict(one),
            moment_text(one.since),
            f"{len(one.pods)} × {one.slots}",
            one.note or NONE,
            one.verdict.what if one.verdict.code else NONE,
            one.run,
        ]
        for at, one in enumerate(results, 1)
    ]
    return grid("Every run in one line", columns, rows)


def _verdict(result: Result) -> Cell:
    sign, code = SIGNS[result.verdict.status], result.verdict.code
    words = f"{sign.text} {result.verdict.status}" + (f" ({code})" if code else "")
    return Cell(words, "" if sign.tone == "good" else sign.tone)


def _measured(figures: Sequence[KeyFigure]) -> Cell:
    """The most telling number."""
    if not figures:
        return Cell(NONE, "soft")
    first = figures[0]
    return Cell(f"{first.text} {first.subject.name}", "bad" if first.wrong else "")


def _overview(results: Sequence[Result], trends: Sequence[Trend]) -> Grid:
    """A line for each trend, below what it was measured on."""
    columns = [GridColumn("measured"), number("median"), number("last"), number("last / median"), number("least")]
    columns += [number("greatest"), GridColumn("unit"), GridColumn("worse since"), number("runs"), number("crossed")]
    groups: dict[str, list[list[Cell | str]]] = {}
    for one in trends:
        crossed = len(one.points) - len(one.good)
        shown = Cell(f"✗ {crossed}", "bad") if crossed else Cell("0")
        worse = first_worse(one, results)
        since = Cell(f"no. {worse.run + 1} ▼", "bad") if worse else Cell(NONE, "soft")
        row = [one.subject.name, *_numbers(results, one), one.subject.unit, since, str(len(one.good)), shown]
        groups.setdefault(one.subject.where, []).append(row)
    note = "Crossed runs, which did not pass or computed something wrong, do not count in the other columns."
    found = tuple(RowGroup(where, cells(rows)) for where, rows in groups.items())
    return Grid("Each measurement in one line", tuple(columns), found, note=note)


def _numbers(results: Sequence[Result], one: Trend) -> list[Cell | str]:
    """Median, last (of the latest run that counts), its ratio, least and greatest."""
    if not one.good:
        return [Cell(NONE, "soft")] * 5
    middle = median(one.good)
    last = max((results[run].since, run, figure.value) for run, figure in one.points if not figure.wrong)[2]
    shown = [one.subject.number(value) for value in (middle, last, min(one.good), max(one.good))]
    change = _to_median(last, one) if len(one.good) > 1 else Cell(NONE, "soft")
    return [*shown[:2], change, *shown[2:]]


def _to_median(value: float, trend: Trend) -> Cell:
    """3 % less; marked as better or worse from 5 % on, if it is further from the median than others are."""
    middle = median(trend.good)
    change = value / middle - 1 if middle else math.nan
    if not math.isfinite(change):
        return Cell(NONE, "soft")
    percent = round(100 * abs(change))
    text = f"{percent} % {'more' if change > 0 else 'less'}" if percent else "the same"
    others = list(trend.good)
    others.remove(value)
    scatter = median(abs(one - middle) for one in others) if others else 0.0
    if percent < 5 or abs(value - middle) <= SCATTERS * scatter:
        return Cell(text)
    worse = trend.subject.is_worse(value, middle)
    return Cell(f"{text}, {'worse ▼' if worse else 'better ▲'}", "bad" if worse else "good")


def _view(at: int, one: Trend, results: Sequence[Result]) -> View:
    """One trend: its chart, a sentence, and its numbers."""
    about = tuple(filter(None, (one.subject.where, _sentence(results, one), _worse_since(results, one))))
    return View(one.subject.name, about, (_picture(at, one, results),), _points(one, results))


def _sentence(results: Sequence[Result], one: Trend) -> str:
    crossed = len(one.points) - len(one.good)
    crosses = f"{count_text(crossed, 'run')} crossed" if crossed else ""
    if not one.good:
        return crosses
    median_, _, change, *_ = (cell.text if isinstance(cell, Cell) else cell for cell in _numbers(results, one))
    found = f"median {median_} {one.subject.unit} of {count_text(len(one.good), 'run')}"
    found += f", the last {change}" if len(one.good) > 1 else ""
    return "; ".join(filter(None, [found, crosses]))


def _worse_since(results: Sequence[Result], one: Trend) -> str:
    """Since which run, and what came with it; empty where it is not worse."""
    found = first_worse(one, results)
    if not found:
        return ""
    result, subject = results[found.run], one.subject
    change = round(100 * abs(found.after / found.before - 1)) if found.before else 100
    percent = f"{change} % {'more' if found.after > found.before else 'less'}"
    return (
        f"Worse ▼ since no. {found.run + 1}, {called(result)}, {moment_text(result.since)}: then {percent}, median "
        f"{subject.number(found.after)} after {subject.number(found.before)} {subject.unit}. "
        f"What changed since no. {found.last_good + 1}: {changes(results[found.last_good], result)}."
    )


def _picture(at: int, one: Trend, results: Sequence[Result]) -> Picture:
    """Runs that count are joined by a curve, with their median; the others are crosses at what they measured."""
    placed = [(results[run].since, figure) for run, figure in one.points if _can_be_drawn(results[run].since)]
    good = [(moment, figure.value) for moment, figure in placed if not figure.wrong]
    crossed = [(moment, figure.value) for moment, figure in placed if figure.wrong]
    moments = [moment for moment, _ in placed]
    lines = [Line("", good, 0, apart=crossed)]
    if good:
        middle = median(value for _, value in good)
        lines.insert(0, Line("median", [(min(moments), middle), (max(moments), middle)], -1))
    subject = one.subject
    described = f"{subject.name} over time ({subject.where}); the numbers are in the table below"
    return Picture(lines, f"trend-{at}", described, Scale(subject.unit, _span(moments), "moments"))


def _points(one: Trend, results: Sequence[Result]) -> Grid:
    """Every number of a trend."""
    columns = [number("no."), number("value", one.subject.unit), number("to the median"), GridColumn("run")]
    rows = [
        [
            str(run + 1),
            Cell(f"✗ {one.subject.number(figure.value)}", "bad") if figure.wrong else one.subject.number(figure.value),
            Cell(NONE, "soft") if figure.wrong else _to_median(figure.value, one),
            results[run].name or results[run].run,
            moment_text(results[run].since),
        ]
        for run, figure in one.points
    ]
    return grid(f"{one.subject.name}: each run", [*columns, GridColumn("began")], rows)

"""What a program wrote of itself into A4_SERIES_FILE: a table, and a chart for each name."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from agent.decide.result import Series, SeriesCurve
from agent.report.charts import Line, Picture, Scale
from agent.report.grid import Cell, GridColumn, View, grid, number
from agent.report.number_words import count_text, number_text

COLUMNS = (
    GridColumn("unit"),
    number("first"),
    number("last"),
    number("least"),
    number("greatest"),
    GridColumn("steps"),
    number("records"),
    number("not a number"),
    GridColumn("written by"),
)
"""What `measures` gives."""
SCALE = Scale("", "step")
NOTE = "Of several ranks, first and last are the median."


def series_view(series: Sequence[Series]) -> View | None:
    """None when nothing was written."""
    if not series:
        return None
    columns = [GridColumn("name"), *COLUMNS]
    table = grid("Each series in one line", columns, [[one.name, *measures(one)] for one in series], note=NOTE)
    described = "over its steps; first, last, least and greatest are in the table"
    pictures = [
        Picture(_lines(one), f"series-{at}", f"Series {at} {described}", SCALE, titled(one))
        for at, one in enumerate(series, 1)
    ]
    return View("", (), tuple(pictures), table)


def titled(one: Series) -> str:
    return f"{one.name} ({one.unit})" if one.unit else one.name


def measures(one: Series) -> list[Cell | str]:
    """What `COLUMNS` names."""
    nans = Cell(f"✗ {one.nans}, first at step {one.nan_at}", "bad") if one.nans else Cell("0")
    values = [number_text(value) for value in (one.first, one.last, one.least, one.greatest)]
    steps = f"{one.first_step} to {one.last_step}" if one.first_step < one.last_step else str(one.first_step)
    pods = count_text(one.pods, "pod")
    named = one.ranks > one.pods or any(curve.rank is not None for curve in one.curves)
    by = f"{count_text(one.ranks, 'rank')} on {pods}" if named else pods
    return [one.unit, *values, steps, str(one.records), nans, by]


def _lines(one: Series) -> list[Line]:
    """A curve for each rank; of many ranks the median between the least and the greatest."""
    return [
        _line(_label(curve), style if curve.of in ("rank", "median") else -1, curve)
        for style, curve in enumerate(one.curves)
    ]


def _label(curve: SeriesCurve) -> str:
    if curve.of != "rank":
        return curve.of
    return f"pod {curve.pod}" if curve.rank is None else f"rank {curve.rank}"


def _line(label: str, style: int, curve: SeriesCurve) -> Line:
    found = list(zip(curve.steps, curve.values, strict=False))
    points = [(step, value) for step, value in found if value is not None]
    return Line(label, points, style, frozenset(step for step, value in found if value is None))


def middle_line(label: str, style: int, one: Series) -> Line:
    """One curve for a whole run: the median of its ranks, at the steps that all have. Each rank's curve is thinned by
    itself: at another step a median would be that of the few that kept it. Where there are none, the fullest curve."""
    if one.curves and (one.curves[0].of == "median" or len(one.curves) == 1):
        return _line(label, style, one.curves[0])
    ranks = [dict(line.points) for line in _lines(one)]
    common = set.intersection(*map(set, ranks)) if ranks else set()
    if ranks and not common:
        ranks = [max(ranks, key=len)]
        common = set(ranks[0])
    return Line(label, [(step, median(rank[step] for rank in ranks)) for step in sorted(common)], style)

"""Series of the same name in several runs, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent.decide.result import Result
from agent.report.charts import Picture
from agent.report.grid import Cell, GridColumn, View, grid, number, side_by_side
from agent.report.number_words import NONE, ratio_text
from agent.report.series import COLUMNS, NOTE, SCALE, measures, middle_line


def compared_series(labels: Sequence[str], results: Sequence[Result]) -> Iterable[View]:
    """A view for each name that two runs or more wrote."""
    every = side_by_side([{one.name: one for one in result.series} for result in results])
    for at, (name, found) in enumerate(every.items(), 1):
        having = [(run, one) for run, one in enumerate(found) if one]
        if len(having) < 2:
            continue
        lines = [middle_line(labels[run], run, one) for run, one in having]
        described = f"Series {at} of several runs over its steps; first, last, least and greatest are in the table"
        first = found[0].last if found[0] else None
        rows: list[list[Cell | str]] = []
        for label, one in zip(labels, found, strict=True):
            if one is None:
                rows.append([label, *[Cell(NONE, "soft")] * (len(COLUMNS) + 1)])
                continue
            ratio = one.last / first if first and one.last is not None else None
            rows.append([label, ratio_text(ratio), *measures(one)])
        columns = [GridColumn("run"), number("last ratio", f"to {labels[0]}"), *COLUMNS]
        picture = Picture(lines, f"compared-series-{at}", described, SCALE, "the median of its ranks")
        yield View(name, (), (picture,), grid(f"{name}: each run in one line", columns, rows, note=NOTE))

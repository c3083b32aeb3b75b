"""The sweeps of one run: curves of bandwidth and time, a line in the overview and a table each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent.decide.result import Measured, Result, Row, Sweep
from agent.report.charts import LATENCY, Line, Picture
from agent.report.grid import Cell, Grid, GridColumn, View, grid, number
from agent.report.number_words import NONE, count_text, number_text, percent_text, size_text, speed_text


def bandwidth(result: Result) -> tuple[Grid, Sequence[View]] | None:
    """A line and a view for each sweep; None when there are none."""
    return (overview(result.sweeps), sweep_views(result.sweeps)) if result.sweeps else None


def sweep_views(sweeps: Sequence[Sweep]) -> tuple[View, ...]:
    """A view for each sweep, in their order. Their ids are the same whenever the page is made of the same results."""
    views = []
    for count, (name, sweep) in enumerate(zip(names(sweeps), sweeps, strict=True), 1):
        over = f"of {name} over message size, {_sizes(sweep.rows)}; the numbers are in the table below"
        known = sorted(sweep.baseline.busbw.items()) if sweep.baseline else []
        baseline = [Line("baseline", known, -1)] if known else []
        speeds = [*baseline, *_curves(sweep, lambda one: one.busbw)]  # the baseline behind
        pictures = (
            Picture(speeds, f"sweep-{count}", f"Bus bandwidth {over}"),
            Picture(_curves(sweep, lambda one: one.time), f"sweep-{count}-time", f"Time per operation {over}", LATENCY),
        )
        views.append(View(name, (_about(sweep),), pictures, _rows(name, sweep)))
    return tuple(views)


def names(sweeps: Sequence[Sweep]) -> list[str]:
    """What tells the sweeps of a run apart: the collective, with type, operation and a number where that is needed."""
    found: list[str] = []
    for sweep in sweeps:
        name = sweep.collective or "collective"
        if sum(other.collective == sweep.collective for other in sweeps) > 1:
            name = " ".join(filter(None, [name, sweep.type, sweep.redop if sweep.redop != "none" else ""]))
        found.append(name)
    counts = [found[:at].count(name) for at, name in enumerate(found, 1)]
    return [f"{name} ({count})" if count > 1 else name for name, count in zip(found, counts, strict=True)]


def overview(sweeps: Sequence[Sweep]) -> Grid:
    """One line per sweep."""
    columns = [GridColumn("collective"), number("ranks"), GridColumn("sizes"), number("peak", "GB/s"), GridColumn("at")]
    columns.append(number("average", "GB/s"))
    compared = any(sweep.baseline for sweep in sweeps)  # one is enough: the columns stand in the table of all
    if compared:
        columns += [number("of baseline", "at the largest size"), number("least", "of baseline")]
    rows = [_line(name, sweep, compared) for name, sweep in zip(names(sweeps), sweeps, strict=True)]
    return grid("Each collective in one line", [*columns, number("wrong", "elements")], rows)


def _line(name: str, sweep: Sweep, with_baseline: bool) -> list[Cell | str]:
    """A line of the overview: the peak is of any size and placement, and says of which."""
    measured = [
        (one.busbw, row.size, name)
        for row in sweep.rows
        for name, one in (("out-of-place", row.out_of_place), ("in-place", row.in_place))
        if one
    ]
    speed, size, placement = max(measured, default=(None, None, ""))
    ratios = [ratio for _, ratio in _ratios(sweep)]
    cells = [cell for row in sweep.rows for cell in row.placements()]
    compared = [percent_text(ratios[-1] if ratios else None), percent_text(min(ratios, default=None))]
    return [
        name,
        str(sweep.ranks or "?"),
        _sizes(sweep.rows),
        speed_text(speed),
        f"{size_text(size)} {placement}" if size is not None else NONE,
        speed_text(sweep.average_busbw),
        *(compared if with_baseline else []),
        _wrong(sum(cell.wrong or 0 for cell in cells), any(cell.wrong is not None for cell in cells)),
    ]


def _ratios(sweep: Sweep) -> list[tuple[int, float]]:
    """(size, measured / baseline) where both are known, by size."""
    baseline = sweep.baseline.busbw if sweep.baseline else {}
    speeds = ((row.size, row.busbw) for row in sweep.rows)
    return [(size, speed / baseline[size]) for size, speed in speeds if speed is not None and baseline.get(size)]


def _wrong(count: int, checked: bool) -> Cell:
    """How many elements were wrong. That nothing was checked must not look as if all were right."""
    if count:
        return Cell(f"✗ {count}", "bad")
    return Cell("0") if checked else Cell("not checked", "soft")


def _sizes(rows: Sequence[Row]) -> str:
    """From the first size to the last, in words."""
    if not rows:
        return NONE
    first, last = size_text(rows[0].size), size_text(rows[-1].size)
    return first if first == last else f"{first} to {last}"


def _about(sweep: Sweep) -> str:
    """What was measured how, in one line."""
    iterations = [
        count_text(sweep.iterations, "iteration") if sweep.iterations is not None else "",
        f"{sweep.warmup} of warm-up" if sweep.warmup is not None else "",
    ]
    kind = " ".join(filter(None, [sweep.type, sweep.redop if sweep.redop != "none" else ""]))
    ranks = count_text(sweep.ranks, "rank") if sweep.ranks else ""
    baseline = f"baseline: {sweep.baseline.name} ({sweep.baseline.source})" if sweep.baseline else ""
    return " · ".join(filter(None, [ranks, sweep.backend, kind, *iterations, baseline]))


def _curves(sweep: Sweep, value: Callable[[Measured], float]) -> list[Line]:
    """A curve for each placement that was measured. Points with wrong results are marked, however fast they came."""
    out = [(row.size, row.out_of_place) for row in sweep.rows if row.out_of_place]
    inside = [(row.size, row.in_place) for row in sweep.rows if row.in_place]
    return [
        Line(label, [(size, value(one)) for size, one in cells], style, frozenset(at for at, one in cells if one.wrong))
        for style, (label, cells) in enumerate((("out-of-place", out), ("in-place", inside)))
        if cells
    ]


def _rows(name: str, sweep: Sweep) -> Grid:
    """Every number of the sweep, a row for each size."""
    placements = [
        GridColumn(f"{title} {what}", unit, "number")
        for title in ("out-of-place", "in-place")
        for what, unit in (("time", "µs"), ("algbw", "GB/s"), ("busbw", "GB/s"), ("wrong", ""))
    ]
    baseline = sweep.baseline.busbw if sweep.baseline else {}
    ratios = dict(_ratios(sweep))
    compared = [number("baseline", "GB/s"), number("of baseline")] if sweep.baseline else []
    rows = (
        [
            size_text(row.size),
            *_placement(row.out_of_place),
            *_placement(row.in_place),
            *([speed_text(baseline.get(row.size)), percent_text(ratios.get(row.size))] if compared else []),
            str(row.count),
        ]
        for row in sweep.rows
    )
    return grid(f"{name}: time and bandwidth by size", [number("size"), *placements, *compared, number("count")], rows)


def _placement(one: Measured | None) -> list[Cell | str]:
    """Time, both bandwidths and wrong elements of one placement; dashes where it was not measured."""
    if one is None:
        return [Cell(NONE, "soft")] * 4
    wrong = _wrong(one.wrong or 0, True) if one.wrong is not None else Cell(NONE, "soft")
    return [number_text(one.time), speed_text(one.algbw), speed_text(one.busbw), wrong]

"""Bandwidth of several runs side by side, by collective and size. What gave wrong results is not compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from agent.decide.result import Result, Sweep
from agent.decide.words import at_most
from agent.report.bandwidth import names
from agent.report.charts import LATENCY, Line, Picture
from agent.report.grid import Cell, Grid, View, grid, number, side_by_side
from agent.report.number_words import count_text, ratio_text, size_text, speed_text


class Curve(NamedTuple):
    """What one run measured of one collective; nothing, where it has no size of it."""

    busbw: Mapping[int, float] = {}
    """GB/s by size in bytes, of the placement that `Row.busbw` is of."""
    wrong: frozenset[int] = frozenset()
    """Sizes at which any placement gave wrong results."""
    right: frozenset[int] = frozenset()
    """Sizes at which results were checked and none was wrong."""
    times: Mapping[int, float] = {}
    """µs by size, of the same placement as `busbw`."""


def curve(sweep: Sweep) -> Curve:
    """A sweep as comparisons need it."""
    wrong = frozenset(row.size for row in sweep.rows if any(one.wrong for one in row.placements()))
    checked = frozenset(row.size for row in sweep.rows if any(one.wrong is not None for one in row.placements()))
    quoted = {row.size: one for row in sweep.rows for one in row.placements()[:1]}
    busbw = {size: one.busbw for size, one in quoted.items()}
    return Curve(busbw, wrong, checked - wrong, {size: one.time for size, one in quoted.items()})


def curves_of(results: Sequence[Result]) -> dict[str, list[Curve]]:
    """Collective → the curve of each run."""
    found = [dict(zip(names(result.sweeps), result.sweeps, strict=True)) for result in results]
    return {name: [curve(one) if one else Curve() for one in row] for name, row in side_by_side(found).items()}


def compared_sweeps(labels: Sequence[str], results: Sequence[Result]) -> Iterable[View]:
    """A view for each collective that any of the runs has measured: GB/s out of place, where that was measured, and the
    ratio over all sizes."""
    for at, (name, curves) in enumerate(curves_of(results).items(), 1):
        runs = f"of {name} over size in runs {', '.join(labels)}"
        speeds = [Line(labels[run], sorted(one.busbw.items()), run, one.wrong) for run, one in enumerate(curves)]
        times = [Line(labels[run], sorted(one.times.items()), run, one.wrong) for run, one in enumerate(curves)]
        pictures = (
            Picture(speeds, f"compared-{at}", f"Bus bandwidth {runs}; the numbers are in the table below"),
            Picture(times, f"compared-{at}-time", f"Time per operation {runs}", LATENCY),
        )
        yield View(name, summary(labels, curves), pictures, _speeds_grid(name, labels, curves))


def ratios(curves: Sequence[Curve], at: int) -> dict[int, float]:
    """Size → the run's speed by that of the first run, where both were measured and neither gave wrong results."""
    first, own = curves[0], curves[at]
    both = sorted(own.busbw.keys() & first.busbw.keys() - own.wrong - first.wrong)
    return {size: own.busbw[size] / first.busbw[size] for size in both if first.busbw[size]}


def summary(labels: Sequence[str], curves: Sequence[Curve]) -> tuple[str, ...]:
    """One line for each run after the first, and one for the first when it has wrong results. A run that gave wrong
    results gets no ratio over all sizes: how fast it was does not matter then."""
    lines = [f"{labels[0]}: {_wrong_text(curves[0])}"] if curves[0].wrong else []
    return (*lines, *(_ratio_line(labels, curves, at) for at in range(1, len(labels))))


def _wrong_text(one: Curve) -> str:
    """At how many sizes, and at which."""
    sizes = ", ".join(at_most([size_text(size) for size in sorted(one.wrong)], 4, "and {} more"))
    return f"✗ wrong results at {len(one.wrong)} of {count_text(len(one.busbw), 'size')}: {sizes}"


def _ratio_line(labels: Sequence[str], curves: Sequence[Curve], at: int) -> str:
    """The ratio of a run to the first over all sizes, or why there is none."""
    label, first = labels[at], labels[0]
    if curves[at].wrong:
        return f"{label}: {_wrong_text(curves[at])}"
    if not curves[at].busbw:
        return f"{label}: not measured"
    if not curves[0].busbw:
        return f"{label} / {first}: not measured in {first}"
    if curves[0].wrong:
        return f"{label} / {first}: no ratio, {first} gave wrong results"
    found = ratios(curves, at)
    if not found:
        return f"{label} / {first}: no size in common"
    worst, largest = min(found, key=lambda size: found[size]), max(found)
    told = f"{label} / {first}: median {ratio_text(median(found.values()))}, "
    told += f"least {ratio_text(found[worst])} at {size_text(worst)}"
    return told if worst == largest else f"{told}, {ratio_text(found[largest])} at {size_text(largest)}"


def _speeds_grid(name: str, labels: Sequence[str], curves: Sequence[Curve]) -> Grid:
    """GB/s of each run at each size, then the ratio to the first run."""
    columns = [number("size"), *(number(label, "GB/s") for label in labels)]
    columns += [number(f"{label} / {labels[0]}") for label in labels[1:]]
    compared = [ratios(curves, at) for at in range(1, len(labels))]
    rows: list[list[Cell | str]] = [
        [
            size_text(size),
            *(_speed(one, size) for one in curves),
            *(_ratio(one.get(size)) for one in compared),
        ]
        for size in sizes_of(curves)
    ]
    return grid(f"{name}: bus bandwidth by size", columns, rows)


def sizes_of(curves: Sequence[Curve]) -> list[int]:
    """Every size that any of the runs measured."""
    return sorted({size for one in curves for size in one.busbw})


def _speed(one: Curve, size: int) -> Cell:
    """GB/s, with a cross where the results were wrong."""
    text = speed_text(one.busbw.get(size))
    return Cell(f"✗ {text}", "bad") if size in one.wrong else Cell(text)


def _ratio(ratio: float | None) -> Cell:
    """Marked from 5 % on: less is what runs differ by anyway."""
    tone = "soft" if ratio is None else "bad" if ratio <= 0.95 else "good" if ratio >= 1.05 else ""
    return Cell(ratio_text(ratio), tone)

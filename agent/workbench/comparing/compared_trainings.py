"""Trainings of several runs side by side, by the stage that trained. Wrong losses get no ratio."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent.decide.result import Result, Training
from agent.report.grid import Cell, Grid, GridColumn, View, grid, number, side_by_side
from agent.report.number_words import NONE, ratio_text
from agent.report.training import COLUMNS, UNKNOWN, line, measures, pictures
from agent.report.training_speed import how, speed


def compared_trainings(labels: Sequence[str], results: Sequence[Result]) -> Iterable[View]:
    """A view for each stage that two runs or more trained in."""
    every = side_by_side([{one.stage: one for one in result.trainings} for result in results])
    for at, (stage, found) in enumerate(every.items(), 1):
        having = [(run, label, one) for run, (label, one) in enumerate(zip(labels, found, strict=True)) if one]
        if len(having) < 2:
            continue
        described = f"of {stage} in runs {', '.join(label for _, label, _ in having)}; the numbers are in the table"
        curves = pictures(
            f"compared-training-{at}",
            described,
            lambda name, _, having=having: [line(name, label, run, one) for run, label, one in having],  # type: ignore[misc]
        )
        yield View(stage, (), curves, _table(stage, labels, results, found))


def _table(stage: str, labels: Sequence[str], results: Sequence[Result], found: Sequence[Training | None]) -> Grid:
    """A line for each run, also for those that did not train in this stage."""
    first = found[0]
    columns = [GridColumn("run"), number("speed ratio", f"to {labels[0]}"), *COLUMNS, GridColumn("model")]
    rows: list[list[Cell | str]] = []
    for label, result, one in zip(labels, results, found, strict=True):
        if one is None:
            rows.append([label, Cell("not trained", "soft"), *[Cell(NONE, "soft")] * (len(columns) - 2)])
            continue
        ratio = ratio_to(results[0], first, result, one) if first else None
        wrong = one.nans or (first and first.nans)
        told = Cell("✗", "bad") if wrong else Cell(ratio_text(ratio), "" if ratio else "soft")
        rows.append([label, told, *measures(result, one), one.model.partition("/")[2] or UNKNOWN])
    trained = [(result, one) for result, one in zip(results, found, strict=True) if one]
    return grid(f"{stage}: each run in one line", columns, rows, note=how(trained))


def ratio_to(first: Result, measure: Training, result: Result, one: Training) -> float | None:
    """How many times as fast as the first run: in tokens per second where both are known, else in iterations. None
    where their iterations are not alike."""
    own, other = speed(result, one), speed(first, measure)
    if own.tokens is not None and other.tokens is not None:
        return own.tokens / other.tokens
    alike = (one.model, one.sequence, one.batch) == (measure.model, measure.sequence, measure.batch)
    if not alike or own.steps is None or other.steps is None:
        return None
    return other.steps.middle / own.steps.middle

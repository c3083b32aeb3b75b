"""What was trained: loss, time and speed of each iteration, as curves and a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from agent.decide.result import Iteration, Training
from agent.report.charts import Line, Picture, Scale
from agent.report.grid import Cell, Grid, GridColumn, View, grid, number
from agent.report.number_words import NONE, count_text, number_text

Value = Callable[[Iteration], float | None]


CURVES: Sequence[tuple[str, str, Value]] = (
    ("loss", "loss", lambda one: one.loss),
    ("step time", "seconds per iteration", lambda one: None if one.milliseconds is None else one.milliseconds / 1000),
    ("speed", "TFLOP/s per GPU", lambda one: one.tflops),
)
"""Name, axis, value."""


def training_views(trainings: Sequence[Training]) -> tuple[View, ...]:
    """A view for each training, in their order."""
    return tuple(
        View(one.stage, (_about(one),), _curves(f"training-{number}", one), _numbers(one))
        for number, one in enumerate(trainings, 1)
    )


def overview(trainings: Sequence[Training]) -> Grid | None:
    """One line per training; None when there are none."""
    if not trainings:
        return None
    columns = [GridColumn("training"), number("iterations"), number("first loss"), number("last loss")]
    columns += [number("step time", "s, median"), number("speed", "TFLOP/s per GPU, median"), number("skipped")]
    return grid("Each training in one line", [*columns, number("not a number")], [_line(one) for one in trainings])


def _line(one: Training) -> list[Cell | str]:
    """A line of the overview. Step time and speed are medians: the first iterations are slow."""
    losses = [iteration.loss for iteration in one.iterations]
    found = [[there for each in one.iterations if (there := value(each)) is not None] for _, _, value in CURVES[1:]]
    middles = [number_text(median(values) if values else None) for values in found]
    nans = Cell(f"✗ {one.nans}", "bad") if one.nans else Cell("0")
    first, last = (number_text(loss) for loss in (losses[0] if losses else None, losses[-1] if losses else None))
    return [one.stage, str(one.count), first, last, *middles, str(one.skipped), nans]


def _about(one: Training) -> str:
    """How many iterations there were. Of many, result.json has an even choice only."""
    if not one.iterations:
        return NONE
    shown = len(one.iterations)
    thinned = f", of which {shown} are shown" if shown < one.count else ""
    return f"{count_text(one.count, 'iteration')}{thinned}, to {one.iterations[-1].iteration} of {one.planned}"


def _curves(id: str, one: Training) -> tuple[Picture, ...]:
    """Loss, step time and speed; iterations whose loss is not a number are marked."""
    wrong = frozenset(iteration.iteration for iteration in one.iterations if iteration.nans)
    found = []
    for style, (name, axis, value) in enumerate(CURVES):
        points = [(each.iteration, there) for each in one.iterations if (there := value(each)) is not None]
        description = f"The {name} of {one.stage} over its iterations; the numbers are in the table below"
        line = Line(name, points, style, wrong)
        found.append(Picture([line], f"{id}-{name.replace(' ', '-')}", description, Scale(axis, "iteration"), name))
    return tuple(found)


def _numbers(one: Training) -> Grid:
    """Every iteration that the result has, a row each."""
    columns = [number("iteration"), number("loss"), number("step time", "s"), number("speed", "TFLOP/s per GPU")]
    rows = (
        [
            str(each.iteration),
            *(number_text(value(each)) for _, _, value in CURVES),
            number_text(each.grad_norm),
        ]
        for each in one.iterations
    )
    return grid(f"{one.stage}: each iteration", [*columns, number("gradient norm")], rows)

"""What was trained: loss, time and speed of each iteration, as curves and a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent.decide.result import Iteration, Result, Training
from agent.report.charts import Line, Picture, Scale
from agent.report.grid import Cell, Grid, GridColumn, View, grid, number
from agent.report.number_words import NONE, count_text, duration_text, number_text
from agent.report.training_speed import how, settled, speed

Value = Callable[[Iteration], float | None]
STEP_TIME = "step time"
UNKNOWN = Cell("not known", "soft")
CURVES: Sequence[tuple[str, str, Value]] = (
    ("loss", "loss", lambda one: one.loss),
    (STEP_TIME, "seconds per iteration", lambda one: None if one.milliseconds is None else one.milliseconds / 1000),
    ("speed", "TFLOP/s per GPU", lambda one: one.tflops),
)
"""Name, axis, value."""


def training(result: Result) -> tuple[Grid, Sequence[View]] | None:
    """A line and a view for each training; None when there are none."""
    return (overview(result), training_views(result.trainings)) if result.trainings else None


def training_views(trainings: Sequence[Training]) -> tuple[View, ...]:
    """A view for each training, in their order."""
    return tuple(
        View(one.stage, (_about(one),), _curves(f"training-{number}", one), _numbers(one))
        for number, one in enumerate(trainings, 1)
    )


COLUMNS = (
    number("not a number", "losses"),
    number("first loss"),
    number("last loss"),
    number("step time", "s, median"),
    number("p95", "s"),
    number("slowest", "s, iteration"),
    number("tokens/s", "all GPUs"),
    number("MFU"),
    number("speed", "TFLOP/s per GPU"),
    number("iterations"),
)
"""What `measures` gives."""


def overview(result: Result) -> Grid:
    """One line per training."""
    columns = [GridColumn("training"), *COLUMNS, number("skipped")]
    rows = [[one.stage, *measures(result, one), str(one.skipped)] for one in result.trainings]
    return grid("Each training in one line", columns, rows, note=how([(result, one) for one in result.trainings]))


def measures(result: Result, one: Training) -> list[Cell | str]:
    """What `COLUMNS` names."""
    losses = [iteration.loss for iteration in one.iterations]
    first, last = (number_text(loss) for loss in (losses[0] if losses else None, losses[-1] if losses else None))
    found = speed(result, one)
    times = found.steps
    steps = [NONE] * 3
    if times:
        steps = [number_text(times.middle), number_text(times.high), f"{number_text(times.worst)} at {times.worst_at}"]
    tokens = UNKNOWN if found.tokens is None else Cell(f"{found.tokens:,.0f}".replace(",", "\u202f"))
    mfu = UNKNOWN if found.mfu is None else Cell(f"{100 * found.mfu:.1f} %")
    nans = Cell(f"✗ {one.nans}", "bad") if one.nans else Cell("0")
    return [nans, first, last, *steps, tokens, mfu, number_text(found.tflops), str(one.count)]


def _about(one: Training) -> str:
    """How many iterations there were. Of many, result.json has an even choice only."""
    if not one.iterations:
        return NONE
    shown = len(one.iterations)
    thinned = f", of which {shown} are shown" if shown < one.count else ""
    began = one.iterations[0].milliseconds
    first = f"; the first took {duration_text(began / 1000)} and is not among the step times" if began else ""
    until = f"to {one.iterations[-1].iteration} of {one.planned}"
    return f"{count_text(one.count, 'iteration')}{thinned}, {until}{first if shown > 1 else ''}"


def _curves(id: str, one: Training) -> tuple[Picture, ...]:
    """Loss, step time and speed, a picture each."""
    described = f"of {one.stage} over its iterations; the numbers are in the table below"
    return pictures(id, described, lambda name, style: [line(name, name, style, one)])


def pictures(id: str, described: str, lines: Callable[[str, int], Sequence[Line]]) -> tuple[Picture, ...]:
    """A picture for each of CURVES with these `lines` of it, given its name and number."""
    return tuple(
        Picture(
            lines(name, style),
            f"{id}-{name.replace(' ', '-')}",
            f"The {name} {described}",
            Scale(axis, "iteration"),
            name,
        )
        for style, (name, axis, _) in enumerate(CURVES)
    )


def line(quantity: str, label: str, style: int, one: Training) -> Line:
    """One of CURVES. Iterations whose loss is not a number are marked. The first step takes many times as long as the
    others and would set the axis: it is left out."""
    value = next(value for name, _, value in CURVES if name == quantity)
    shown = settled(one.iterations) if quantity == STEP_TIME else one.iterations
    points = [(each.iteration, there) for each in shown if (there := value(each)) is not None]
    return Line(label, points, style, frozenset(each.iteration for each in one.iterations if each.nans))


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

"""How a pipeline ended: what failed, what was trained, and what there was nothing to do for."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent import wire
from agent.decide.ending import JobEnd, exit_code
from agent.decide.result import Training, table
from agent.decide.tables import render
from agent.decide.words import lines
from agent.errors import Exit
from agent.workloads.base import Judgement, Measurements, Outcome, RunContext
from agent.workloads.ends import broken_off
from agent.workloads.network import users_network
from agent.workloads.pai_megatron.options import Options
from agent.workloads.pai_megatron.printed import TRAININGS, StageFailure, StageNotes
from agent.workloads.step_record import StepEnd, read_steps
from agent.workloads.torch_failures import torchrun_failure

LOG = "pai-megatron.log"
BY_TORCHRUN = ("convert", *TRAININGS)
NAN = re.compile(r"found (NaN|Inf) in ", re.IGNORECASE)
"""In the error with which Megatron ends at a loss that is not a number."""


def judge(context: RunContext, outcome: Outcome, options: Options | None = None) -> Judgement:
    """Its own failures first, then why it was ended, then what the trainings show."""
    notes = {index: wire.from_json(StageNotes, found) for index, found in outcome.notes.items() if found}
    order = context.indices
    printed = next((notes[i].trainings for i in reversed(order) if i in notes and notes[i].trainings), ())
    trainings = [_with_sizes(one, options) for one in printed]
    ends = read_steps(outcome.record)
    reasons = _wrong(ends, trainings)
    end = _end(context, outcome, {i: one.failure for i, one in notes.items() if one.failure}, ends, trainings, reasons)
    network = users_network(context, outcome, {index: one.logs for index, one in notes.items()})
    end = network.end(end)
    columns = {"stage": "", "time": "s", "what was done": ""}
    stages = table("stages", "Stages", columns, [[one.name, one.seconds, _what(one)] for one in ends])
    measurements = Measurements(
        reasons=reasons,
        tables=[stages] if ends else [],
        trainings=tuple(trainings),
        record={
            "stages": [
                {"name": one.name, "seconds": one.seconds, "passed_over": one.passed_over, "status": one.status or 0}
                for one in ends
            ]
        },
    )
    text = _text(end, reasons, trainings, ends) + network.text()
    return Judgement(end, text, network.measurements(measurements), LOG)


def _end(
    context: RunContext,
    outcome: Outcome,
    failures: dict[int, StageFailure],
    ends: Sequence[StepEnd],
    trainings: Sequence[Training],
    reasons: Sequence[str],
) -> JobEnd:
    name = context.spec.workload
    if outcome.first is not None:
        end = _failed(context, outcome, outcome.first, failures.get(outcome.first))
        if end.code == Exit.WRONG_RESULT and reasons:  # what all iterations show says more than a line of one
            return end._replace(what=reasons[0], why=lines(*reasons[1:], end.what, end.why))
        return end
    if early := broken_off(context, outcome):
        return early
    if reasons:
        return JobEnd(Exit.WRONG_RESULT, reasons[0], why="\n".join(reasons[1:]), origin="workload")
    made = ", ".join(one.name for one in ends if one.done)
    if not made:
        return JobEnd(0, f"{name}: nothing to do, every stage is complete or left out", origin="workload")
    said = "; ".join(summary(one) for one in trainings)
    return JobEnd(0, f"{name}: {said}" if said else f"{name}: done: {made}", origin="workload")


def _failed(context: RunContext, outcome: Outcome, index: int, failure: StageFailure | None) -> JobEnd:
    """What its own pod said of it and, of what torchrun started, torch."""
    where = context.where(index)
    if failure is None:
        code = exit_code(outcome.statuses[index])
        return JobEnd(code, f"the stages of pod {index} ended with {code}", where)
    if failure.origin == "agent":
        return JobEnd(failure.code, failure.what, where, failure.hint)
    output = "\n".join(part.output for part in outcome.failures.values())
    if NAN.search(output):
        what = f"{failure.stage}: the loss is not a number, and Megatron has ended"
        return JobEnd(Exit.WRONG_RESULT, what, where, lines(failure.what, failure.hint), "workload")
    torch = torchrun_failure(context, outcome, own=failure.stage) if failure.stage in BY_TORCHRUN else None
    why = lines(failure.hint, torch.what, torch.why) if torch is not None else failure.hint
    return JobEnd(failure.code, failure.what, where, why, "workload")


def _with_sizes(one: Training, options: Options | None) -> Training:
    """Megatron's lines do not say what it trains; the arguments that it was started with do."""
    arguments = options and options.trainings.get(one.stage)
    if not options or not arguments:
        return one
    sequence, batch = int(arguments["SEQ_LEN"]), int(arguments["GLOBAL_BATCH_SIZE"])
    return one._replace(model=options.paths.size.model, sequence=sequence, batch=batch)


def _wrong(ends: Sequence[StepEnd], trainings: Sequence[Training]) -> list[str]:
    """What speaks against trainings that ended with 0."""
    found = [
        f"{one.stage}: the loss of {one.nans} of {one.count} iterations is not a number"
        for one in trainings
        if one.nans
    ]
    trained = {one.stage for one in trainings}
    silent = [one.name for one in ends if one.name in TRAININGS and one.done and one.name not in trained]
    return found + [f"{name} ended with 0, but the last rank has printed no iteration" for name in silent]


def summary(training: Training) -> str:
    """One training in one line."""
    from statistics import median  # here: only the coordinator needs it, at the end

    first, last = training.iterations[0], training.iterations[-1]
    parts = [f"{training.stage} made iterations {first.iteration} to {last.iteration} of {training.planned}"]
    if first.loss is not None and last.loss is not None:
        parts.append(f"loss {first.loss:.4g} to {last.loss:.4g}")
    times = [one.milliseconds for one in training.iterations if one.milliseconds is not None]
    speeds = [one.tflops for one in training.iterations if one.tflops is not None]
    parts += [f"{median(times) / 1000:.3g} s each"] if times else []
    parts += [f"{median(speeds):.3g} TFLOP/s per GPU"] if speeds else []
    return ", ".join(parts)


def _what(end: StepEnd) -> str:
    if end.status:
        return f"failed with exit code {end.status}"
    return end.passed_over or ("done" if end.done else "not ended")


def _text(end: JobEnd, reasons: Sequence[str], trainings: Sequence[Training], ends: Sequence[StepEnd]) -> str:
    told = [end.what, *(f"  {reason}" for reason in reasons if reason != end.what)]
    told += [f"  {said}" for one in trainings if (said := summary(one)) not in end.what]
    rows = [[one.name, "" if one.seconds is None else f"{one.seconds:.1f}", _what(one)] for one in ends]
    return "\n".join(told) + "\n" + (render(["stage", "seconds", "what was done"], rows) if rows else "")

"""What becomes of a run when all its parts are over: from their ends to the judgement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from agent.decide.ending import (
    JobEnd,
    is_told,
    masked,
    with_failure,
    with_followers,
    with_losses,
    with_out_of_memory,
)
from agent.decide.part_end import PartEnd
from agent.decide.words import lines
from agent.errors import Exit
from agent.lifecycle.runs.course import Course
from agent.workloads.base import FailedPart, Judgement, Outcome, RunContext, Workload
from agent.workloads.ends import broken_off


def judge(
    workload: Workload, context: RunContext, course: Course, ends: Mapping[int, PartEnd], tokens: Sequence[str]
) -> Judgement:
    """What the workload makes of it all. Without any part's end there is nothing to judge but why it was ended."""
    if course.cause is not None and not ends:
        return Judgement(course.cause)
    return judged(workload, context, outcome(course, ends, tokens), only_victims=course.only_victims)


def judged(workload: Workload, context: RunContext, outcome: Outcome, *, only_victims: bool) -> Judgement:
    """The verdict. What ended the run before goes before the failures of its processes, and has them below it; so do
    lost pods, where all failures are `only_victims` of others. A cancel while pods are asked whether they are there
    changes nothing of a failure."""
    if outcome.cause is not None:
        cause: JobEnd | None = with_losses(outcome.cause, outcome.lost, context.where)
    else:
        cause = broken_off(context, outcome) if only_victims else None
    if outcome.first is not None and cause is not None:
        judgement = workload.judge(context, replace(outcome, cause=None))
        failure = judgement.end
        if is_told(cause) and cause.code == Exit.INTERRUPTED and failure.code:
            return judgement._replace(end=with_failure(failure, cause))
        outcome = replace(outcome, first=None, cause=with_failure(cause, failure))
    return workload.judge(context, outcome)


def outcome(course: Course, ends: Mapping[int, PartEnd], tokens: Sequence[str]) -> Outcome:
    """What is known when all parts are over."""
    lead = ends.get(course.lead, PartEnd(None))
    return Outcome(
        status=lead.status or 0,
        record=lead.record,
        output=lead.output,
        tokens=tokens,
        statuses={index: end.status for index, end in ends.items() if end.status is not None},
        ranks={rank: how for end in ends.values() for rank, how in end.ranks.items()},
        lost=dict(course.lost),
        notes={index: end.notes for index, end in ends.items() if end.notes},
        first=course.first,
        failures={index: FailedPart(end.output, end.error) for index, end in ends.items() if end.status},
        cause=course.cause,
        told=course.told,
        stuck=lead.stuck,
    )


def warned(judgement: Judgement, warnings: Sequence[str]) -> Judgement:
    """The judgement with more that does not count against the run, for people and for result.json."""
    measurements = judgement.measurements._replace(warnings=[*judgement.measurements.warnings, *warnings])
    text = judgement.text + "".join(f"{line}\n" for line in warnings)
    return judgement._replace(measurements=measurements, text=text)


def explained(
    judgement: Judgement,
    context: RunContext,
    workload: Workload,
    ends: Mapping[int, PartEnd],
    mask: Callable[[str], str],
) -> Judgement:
    """The judgement with what its end does not say of other pods, and as it may be shown."""
    end = judgement.end
    if not (workload.fail_fast or workload.led):
        cannot = [f"{context.where(index)}: {part.what}" for index, part in sorted(ends.items()) if part.what]
        end = end._replace(why=lines(end.why, *cannot))
    if workload.fail_fast and not workload.led:
        failed = [index for index, part in ends.items() if part.status]
        end = with_followers(end, failed, context.per_pod if workload.starts_ranks else 0)
    end = with_out_of_memory(end, [index for index, part in ends.items() if part.out_of_memory], context.where)
    return judgement._replace(end=masked(end, mask))

"""What becomes of a run when all its parts are over: from their ends to the judgement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from agent.decide.ending import masked, with_followers, with_out_of_memory
from agent.decide.part_end import PartEnd
from agent.decide.words import lines
from agent.lifecycle.runs.course import Course
from agent.workloads.base import FailedPart, Judgement, Outcome, RunContext, Workload
from agent.workloads.ends import judged


def judge(
    workload: Workload, context: RunContext, course: Course, ends: Mapping[int, PartEnd], tokens: Sequence[str]
) -> Judgement:
    """What the workload makes of it all. Without any part's end there is nothing to judge but why it was ended."""
    if course.cause is not None and not ends:
        return Judgement(course.cause)
    return judged(workload, context, outcome(course, ends, tokens), only_victims=course.only_victims)


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

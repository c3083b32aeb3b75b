"""What commands and `a4-agent status` are told of a run, as values; secrets are masked."""

from __future__ import annotations

from agent.decide.ending import exit_code
from agent.decide.pod_state import RunSummary
from agent.decide.run_info import CertainEnd, RunEnd, RunInfo
from agent.decide.run_names import command_line, one_line
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.runs.running import Run


def run_info(pod: Pod, run: Run) -> RunInfo:
    """The answer to `submit` and `find`."""
    context = run.context
    name, note, command = _labels(pod, run)
    return RunInfo(
        id=run.run_id,
        pods=tuple(context.indices),
        lead=context.lead,
        outputs=tuple(run.workload.printing(context.indices)),
        names={peer.index: peer.name for peer in context.plan.peers},
        over=run.over,
        slots=context.per_pod,
        name=name,
        note=note,
        command=command,
    )


def run_summary(pod: Pod, run: Run) -> RunSummary:
    """The run for `status` on every pod, with `until` once it is over."""
    name, note, command = _labels(pod, run)
    earlier = run.verdict.lives.earlier
    summary = RunSummary(
        id=run.run_id,
        workload=run.workload.name,
        by=run.context.spec.by,
        first=run.first,
        since=run.since,
        pods=tuple(run.context.indices),
        lead=run.context.lead,
        results=run.results,
        beside=run.beside,
        name=name,
        note=note,
        command=command,
        life=run.context.life if run.context.spec.lives else None,
        ended_by=pod.log.masked(str(earlier[-1].end._replace(why=""))) if earlier else None,
        awaits=run.awaited_pods or None,
    )
    return summary if run.until is None else summary.ended(run.until, run.verdict.end)


def certain_end(run: Run) -> CertainEnd:
    """The answer to `verdict`, of a run whose end is certain."""
    return CertainEnd(run.verdict.end, run.verdict.waits)


def run_end(pod: Pod, run: Run) -> RunEnd:
    """The answer to `wait`, of a run that is judged."""
    assert run.verdict.judgement is not None
    mask = pod.log.masked
    return RunEnd(
        end=run.verdict.end,
        text=mask(run.verdict.judgement.text),
        codes={index: exit_code(end.status) for index, end in run.verdict.ends.items() if end.status is not None},
        lost={index: mask(why) for index, why in run.course.lost.items()},
        results=run.results,
        missing=mask(run.missing),
    )


def _labels(pod: Pod, run: Run) -> tuple[str, str, str]:
    """Name, note and command line, by which people know it again."""
    spec, mask = run.context.spec, pod.log.masked
    return spec.name, mask(spec.note), one_line(mask(command_line(spec)))

"""Which failure of a run under torchrun is its cause, over all pods."""

from __future__ import annotations

from agent.decide.ending import JobEnd, exit_code
from agent.decide.tail import last_lines
from agent.decide.torchrun import torchrun_end
from agent.errors import Exit
from agent.workloads.base import FailedPart, Outcome, RunContext
from agent.workloads.torch_errors import (
    Failure,
    all_victims,
    did_not_come,
    of_rank,
    pod_failures,
    root_cause,
    sentence,
)

MOST_SHOWN = 8


def torchrun_failure(context: RunContext, outcome: Outcome, *, own: str = "") -> JobEnd | None:
    """Why the run failed; None when no process failed by itself.

    A program of a4-agent, named in `own`, ends the run with the code of its rank; torchrun's is 1 for all of them.
    """
    if outcome.first is None:
        return None
    status = outcome.statuses[outcome.first]
    said = outcome.failures.get(outcome.first, FailedPart()).output
    of_torchrun = torchrun_end(status, said, python=context.workload_python, port=context.master_port)
    if not of_torchrun.of_program:
        return JobEnd(of_torchrun.code, of_torchrun.sentence, context.where(outcome.first))
    failures = _failures(outcome)
    if outcome.lost and all_victims(failures):
        why = "\n".join([outcome.losses, *_sentences(failures)])
        return JobEnd(Exit.TRY_AGAIN, "pods were lost during the run", why=why)
    cause = root_cause(failures)
    assert cause is not None
    code = exit_code(status)
    if own and cause.exit_code:
        code = exit_code(cause.exit_code)
    what = f"{own}: {sentence(cause)}" if own else sentence(cause)
    why = _why(failures, cause, outcome.failures.get(cause.index, FailedPart()).output)
    return JobEnd(code, what, context.where(cause.index), why, origin="workload")


def _failures(outcome: Outcome) -> list[Failure]:
    """The failures of all pods, the one that was heard first in front."""
    failed = [index for index, status in outcome.statuses.items() if status]
    found: list[Failure] = []
    for index in sorted(failed, key=lambda index: (index != outcome.first, index)):
        part = outcome.failures.get(index, FailedPart())
        found += pod_failures(index, outcome.statuses[index], part.output, part.error)
    return found


def _why(failures: list[Failure], cause: Failure, output: str) -> str:
    """The traceback of the cause, or the last that its pod printed; where there is none but that of a rank that missed
    another, who that is."""
    lines = list(filter(None, [cause.trace or last_lines(of_rank(output, cause.rank))]))
    if all_victims(failures):
        lines.append("every rank that failed only missed another one: look at the network, and at ranks that hung")
        lines += [f"rank {rank} did not come and had to be ended" for rank in did_not_come(failures)]
    return "\n".join(lines)


def _sentences(failures: list[Failure]) -> list[str]:
    told = [f"pod {one.index}: {sentence(one)}" for one in failures]
    more = [f"… and {len(told) - MOST_SHOWN} more"] if len(told) > MOST_SHOWN else []
    return told[:MOST_SHOWN] + more

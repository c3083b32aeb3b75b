"""What `ddp` and `collectives` have in common: programs of a4-agent that torchrun starts, and the record they write."""

from __future__ import annotations

from agent.decide.ending import JobEnd
from agent.decide.words import lines
from agent.errors import Exit
from agent.launch import Launch
from agent.paths import shipped
from agent.workloads.base import Outcome, RunContext
from agent.workloads.everywhere import end_without_failure
from agent.workloads.rank_record import Verdict
from agent.workloads.torch_failures import torchrun_failure
from agent.workloads.torchrun import start_torchrun

PRESETS = {
    "TORCH_NCCL_USE_COMM_NONBLOCKING": "gIB's checker refuses it when it is set at all",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "a rank that waits for a dead one must be ended",
    "NCCL_ASYNC_ERROR_HANDLING": "the old name of TORCH_NCCL_ASYNC_ERROR_HANDLING",
}
"""Variables that images of NVIDIA preset and that the programs must not get, unless somebody typed them: why."""


def start_program(context: RunContext, program: str) -> Launch:
    """torchrun with entrypoints/`program` and the arguments of the run. Raises UsageError."""
    without = [name for name in PRESETS if name in context.environ and name not in context.spec.env]
    given = {"A4_TOKEN_FILE": context.token_file, "A4_RECORD": context.record}
    words = [shipped("entrypoints", program), *context.args]
    launch = start_torchrun(context, words, given=given, cwd="/", without=without)
    notes = [f"{name}={context.environ[name]} of the image is not passed on: {PRESETS[name]}" for name in without]
    return launch._replace(notes=(*launch.notes, *notes))


def slots_of(context: RunContext) -> int:
    """Ranks on each pod."""
    return context.spec.per_node or context.plan.slots


def names_of(context: RunContext) -> list[str]:
    """Names of the pods, in rank order."""
    return [peer.name for peer in context.plan.peers]


def program_end(context: RunContext, outcome: Outcome, verdict: Verdict, *, own: str, good: str, bad: str) -> JobEnd:
    """The end of a run whose record is judged: what that finds wrong comes first, then why the run was ended,
    processes that failed, lost pods."""
    why = "\n".join(verdict.reasons) if outcome.record or not (outcome.cause or outcome.first is not None) else ""
    if verdict.code:
        return JobEnd(verdict.code, bad, why=why, origin="workload")
    if outcome.cause is not None:
        return _with_why(outcome.cause, why)
    failed = torchrun_failure(context, outcome, own=own)
    if failed is not None:
        return _with_why(failed, why)
    if outcome.lost:
        return end_without_failure(outcome, own)
    if verdict.code is None:
        return JobEnd(Exit.WRONG_RESULT, "every process ended with 0, but the record of the ranks ends early", why=why)
    return JobEnd(0, good, origin="workload")


def _with_why(end: JobEnd, more: str) -> JobEnd:
    """The end with more reasons below its own."""
    return end._replace(why=lines(end.why, more))

"""`mpirun`: any program as MPI ranks; its ranks' records tell how it ended, whatever mpirun says."""

from __future__ import annotations

from dataclasses import replace

from agent.decide.ending import JobEnd, from_error
from agent.decide.mpirun import Mpi, MpirunEnd, mpirun_end, reported_end
from agent.decide.ranks import RanksVerdict, as_json, ranks_verdict
from agent.errors import AgentError, Exit, UsageError
from agent.launch import Launch
from agent.workloads.base import Findings, Judgement, Kind, Outcome, Plain, RunContext
from agent.workloads.mpi import layout, start, usable_mpi

LINGER_SECONDS = "0.5"
"""Open MPI 5.0.11, three pods on two busy cores: 29 of 40 runs lost some of the 1 MB that they printed, 14 with 0.1 s
after the last line, 2 with 0.3 s, none with 0.5 s. And 8 of 52 runs of `true` hung, of 252 with 0.1 s none."""


class Mpirun(Plain):
    name = "mpirun"
    kind: Kind = "mpi"

    def launch(self, context: RunContext) -> Launch | None:
        """Raises UsageError and MissingProgram."""
        if not context.args:
            raise UsageError("mpirun needs a program", "a4-agent mpirun -- ./program argument")
        ranks = layout(context)
        if context.index != context.lead:
            return None
        given = {"A4_RANKS_DIR": context.ranks_dir}
        if usable_mpi(context).version.major >= 5:
            given["A4_RANKS_LINGER"] = LINGER_SECONDS
        program = ["sh", context.rank_script, *context.args]
        return start(context, program, ranks, given=given, cwd=context.spec.cwd)

    def is_ending(self, output: str, record: str) -> bool:
        return reported_end(output) is not None

    def judge(self, context: RunContext, outcome: Outcome) -> Judgement:
        try:
            mpi, ranks = usable_mpi(context), layout(context)
        except AgentError as error:  # nothing was started, for the same reason
            return Judgement(outcome.cause or from_error(error))
        peers = context.plan.peers
        found = ranks_verdict(outcome.ranks, ranks.ranks, lambda rank: peers[ranks.pod(rank)].index, outcome.lost)
        end = end_of_ranks(context.args[0], mpi, outcome, found)
        if found.first is not None and end.origin == "workload":
            end = replace(end, where=context.where(peers[ranks.pod(found.first)].index))
        findings = Findings(versions={"Open MPI": str(mpi.version)}, record=as_json(outcome.ranks, ranks.ranks))
        return Judgement(end, findings=findings)


def end_of_ranks(program: str, mpi: Mpi, outcome: Outcome, ranks: RanksVerdict) -> JobEnd:
    """In this order: every rank ended well; why the run was ended; lost pods; what mpirun says of its daemons; the
    ranks' records of failures; mpirun's status."""
    told = _mpirun_end(mpi, outcome, ranks)
    if ranks.complete and not told.code:
        return JobEnd(0, f"{program} done", origin="workload")
    if outcome.cause is not None:
        return replace(outcome.cause, why=_lines(outcome.cause.why, ranks.text))
    if outcome.lost:
        return JobEnd(Exit.TRY_AGAIN, "pods were lost during the run", why=_lines(outcome.losses, ranks.text))
    if told.code == Exit.TRY_AGAIN and not told.of_rank and outcome.status != ranks.code:
        return JobEnd(told.code, told.sentence, why=ranks.text)
    if ranks.refused:
        return JobEnd(Exit.MISSING_PROGRAM, f"{program} cannot be started", why=ranks.text)
    if ranks.code:
        first, _, others = ranks.text.partition("\n")
        return JobEnd(ranks.code, f"{program}: {first}", why=_lines(others, _hint(ranks.code)), origin="workload")
    if told.code:
        return JobEnd(told.code, told.sentence, why=ranks.text, origin="workload" if told.of_rank else "agent")
    what = "ranks are missing, and nothing else explains it"
    return JobEnd(Exit.WRONG_RESULT, what, why=_lines(told.sentence, ranks.text))


def _mpirun_end(mpi: Mpi, outcome: Outcome, ranks: RanksVerdict) -> MpirunEnd:
    if outcome.stuck:
        code, sentence = reported_end(outcome.output) or (0, "")
        return MpirunEnd(code, f"{sentence} (mpirun {mpi.version} hung after that and was ended)", of_rank=True)
    return mpirun_end(mpi.version, outcome.status, outcome.output, started=ranks.started)


def _hint(code: int) -> str:
    if code not in (126, 127):
        return ""
    return f"{code} is its own code; often something that it starts is missing or cannot be executed"


def _lines(*texts: str) -> str:
    return "\n".join(text for text in texts if text)

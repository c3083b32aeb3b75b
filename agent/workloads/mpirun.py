"""`mpirun`: any program as MPI ranks; its ranks' records tell how it ended, whatever mpirun says."""

from __future__ import annotations

from collections.abc import Sequence

from agent.decide.ending import from_error
from agent.decide.mpirun_end import without_notices
from agent.decide.ranks import as_json, ranks_verdict
from agent.decide.tail import last_lines
from agent.decide.words import lines
from agent.errors import AgentError, UsageError
from agent.launch import Launch
from agent.workloads.base import Findings, Judgement, Kind, Outcome, RunContext, Workload
from agent.workloads.mpi import end_of_ranks, layout, recorded, start, usable_mpi


class Mpirun(Workload):
    name = "mpirun"
    kind: Kind = "mpi"

    def launch(self, context: RunContext) -> Launch | None:
        """Raises UsageError and MissingProgram."""
        if not context.args:
            raise UsageError("mpirun needs a program", "a4-agent mpirun -- ./program argument")
        ranks = layout(context)
        if context.index != context.lead:
            return None
        given = recorded(context)
        program = ["sh", context.rank_script, *context.args]
        return start(context, program, ranks, given=given, cwd=context.spec.cwd)

    def programs(self, context: RunContext) -> Sequence[str]:
        return context.args[:1]

    def judge(self, context: RunContext, outcome: Outcome) -> Judgement:
        try:
            mpi, ranks = usable_mpi(context), layout(context)
        except AgentError as error:  # nothing was started, for the same reason
            return Judgement(outcome.cause or from_error(error))
        peers = context.plan.peers
        found = ranks_verdict(outcome.ranks, ranks.ranks, lambda rank: peers[ranks.pod(rank)].index, outcome.lost)
        end = end_of_ranks(context, context.args[0], outcome, found)
        if end.code and end.origin == "workload":
            end = end._replace(why=lines(last_lines(without_notices(outcome.output)), end.why))
        findings = Findings(versions={"Open MPI": str(mpi.version)}, record=as_json(outcome.ranks, ranks.ranks))
        return Judgement(end, findings=findings)

"""`mpirun`: any program as MPI ranks; its ranks' records tell how it ended, whatever mpirun says."""

from __future__ import annotations

from collections.abc import Sequence

from agent.decide.mpirun_end import without_notices
from agent.decide.ranks import as_json
from agent.decide.tail import last_lines
from agent.decide.words import lines
from agent.errors import UsageError
from agent.launch import Launch
from agent.workloads.base import Findings, Judgement, Outcome, RunContext
from agent.workloads.mpi import MpiWorkload, end_of_ranks, layout, recorded, recorded_ends, start, usable_mpi


class Mpirun(MpiWorkload):
    name = "mpirun"

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

    def judge_ranks(self, context: RunContext, outcome: Outcome) -> Judgement:
        mpi, ranks = usable_mpi(context), layout(context)
        end = end_of_ranks(context, context.args[0], outcome, recorded_ends(context, outcome, ranks))
        if end.code and end.origin == "workload":
            end = end._replace(why=lines(last_lines(without_notices(outcome.output)), end.why))
        findings = Findings(versions={"Open MPI": str(mpi.version)}, record=as_json(outcome.ranks, ranks.ranks))
        return Judgement(end, findings=findings)

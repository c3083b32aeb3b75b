"""`mpirun`: any program as MPI ranks; its ranks' records tell how it ended, whatever mpirun says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.decide.mpirun import check_options
from agent.decide.mpirun_end import without_notices
from agent.decide.ranks import RankEnd, as_json
from agent.decide.tail import last_lines
from agent.decide.words import lines
from agent.errors import UsageError
from agent.launch import Launch, is_python
from agent.workloads.base import Judgement, Measurements, Outcome, RunContext
from agent.workloads.held_rank import check_held, hold, last_words, nobody_came
from agent.workloads.mpi import (
    MpiWorkload,
    check_length,
    end_of_ranks,
    layout,
    recorded,
    recorded_ends,
    start,
    usable_mpi,
)
from agent.workloads.network import logs_of, users_logs, users_network


class Mpirun(MpiWorkload):
    name = "mpirun"
    takes_without = True

    def check(self, context: RunContext) -> None:
        if not context.args:
            raise UsageError("mpirun needs a program", "a4-agent mpirun -- ./program argument")
        check_length(context.args)
        if context.spec.mpi is not None:
            check_options(context.spec.mpi)
        check_held(context, layout(context).ranks)

    def launch(self, context: RunContext) -> Launch | None:
        """Raises UsageError, SettingsError and MissingProgram."""
        ranks, logs = layout(context), users_logs(context)
        if context.index != context.lead:
            return None
        given = {"A4_SERIES_FILE": context.series_file, **recorded(context), **logs}
        program = ["sh", context.rank_script, *hold(context), *context.args]
        return start(context, program, ranks, given=given, cwd=context.spec.cwd)

    def programs(self, context: RunContext) -> Sequence[str]:
        return context.args[:1]

    def files(self, context: RunContext) -> Sequence[str]:
        program, script = [*context.args, "", ""][:2]
        return [script] if is_python(program) and script and not script.startswith("-") else []

    def ranks_over(self, context: RunContext, ranks: Mapping[int, RankEnd]) -> bool:
        return layout(context).over_on(context.plan.node_rank(context.index), ranks)

    def judge_ranks(self, context: RunContext, outcome: Outcome) -> Judgement:
        mpi, ranks = usable_mpi(context), layout(context)
        ended = recorded_ends(context, outcome, ranks)
        end = nobody_came(context, outcome) or end_of_ranks(context, context.args[0], outcome, ended)
        if end.code and end.origin == "workload":
            said = last_words(context, ended.first, last_lines(without_notices(outcome.output)), outcome.output)
            end = end._replace(why=lines(said, end.why))
        network = users_network(context, outcome, logs_of(outcome))
        measurements = Measurements(versions={"Open MPI": str(mpi.version)}, record=as_json(outcome.ranks, ranks.ranks))
        return Judgement(network.end(end), network.text(), network.measurements(measurements))

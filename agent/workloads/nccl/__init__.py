"""`nccl`: nccl-tests through mpirun, one rank per GPU, after a connectivity test; judged by results, network, speed."""

from __future__ import annotations

from collections.abc import Mapping

from agent.decide.result import Result
from agent.launch import Launch
from agent.workloads.base import Judgement, Outcome, RunContext
from agent.workloads.connectivity import shown_pairs
from agent.workloads.mpi import MpiWorkload
from agent.workloads.nccl.notes import Noted, noted
from agent.workloads.nccl.options import OPTIONS, parse_options
from agent.workloads.nccl.steps import first_steps, known_baselines, notes, processes, test_steps
from agent.workloads.nccl.verdict import Ended, judgement
from agent.workloads.nccl_tests import FIRST_ROW
from agent.workloads.showing import Showing
from agent.workloads.step_launch import start_steps


class Nccl(MpiWorkload):
    name = "nccl"
    options = OPTIONS
    passes_on = "every program of nccl-tests"
    uses_fabric = True
    uses_baselines = True
    shows_collective = FIRST_ROW
    output_bytes = 1 << 20

    def check(self, context: RunContext) -> None:
        super().check(context)
        processes(context, parse_options(context.args, context.profile))

    def launch(self, context: RunContext) -> Launch | None:
        """Raises UsageError, SettingsError and MissingProgram."""
        options = parse_options(context.args, context.profile)
        if context.index == 0:
            known_baselines(context)  # where they will be needed
        if context.index != context.lead:
            return None
        made = start_steps(context, [*first_steps(context, options), *test_steps(context, options)])
        return made._replace(notes=[*made.notes, *notes(context, options)])

    def inspect(self, context: RunContext, files: Mapping[str, str]) -> Noted:
        return noted(files)

    def judge_ranks(self, context: RunContext, outcome: Outcome) -> Judgement:
        return judgement(Ended(context, outcome))

    def shown(self, result: Result) -> Showing:
        return shown_pairs(result)  # beside its sweeps, which every result shows

"""`script`: the mounted task script, by bash, on every pod."""

from __future__ import annotations

from agent.errors import MissingProgram
from agent.launch import Launch
from agent.workloads.base import Judgement, Outcome, RunContext, Workload, run_variables
from agent.workloads.ends import end_without_failure, first_failure
from agent.workloads.why_variables import why_variables


class Script(Workload):
    name = "script"
    passes_on = "the script"

    def check(self, context: RunContext) -> None:
        """The script reads its arguments itself."""

    def launch(self, context: RunContext) -> Launch:
        """Raises MissingProgram when no script is mounted."""
        if not context.script:
            raise MissingProgram(
                "no task script is mounted", "mount one at /workload/task/task-script.sh (chart: task_script)"
            )
        rank = str(context.plan.node_rank(context.index))
        given = {
            **run_variables(context),
            **why_variables(context),
            "A4_SERIES_FILE": context.series_file,
            "A4_NODE_RANK": rank,
            "NODE_RANK": rank,
            "MASTER_ADDR": context.master,
            "MASTER_PORT": str(context.master_port),
            "A4_HOSTFILE": context.hostfile,
            "A4_HOSTFILE_1PERNODE": context.hostfile_one_per_node,
        }
        return Launch(["bash", context.script, *context.args], {**context.environ, **given}, added=tuple(given))

    def judge(self, context: RunContext, outcome: Outcome) -> Judgement:
        failure = first_failure(context, outcome, context.script)
        return Judgement(failure or end_without_failure(context, outcome, context.script))

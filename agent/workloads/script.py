"""`script`: the mounted task script, by bash, on every pod."""

from __future__ import annotations

from agent.decide.ending import from_status
from agent.errors import MissingProgram
from agent.launch import Launch
from agent.paths import HOSTFILE, HOSTFILE_ONE_PER_NODE
from agent.workloads.base import Judgement, Kind, Outcome, RunContext


class Script:
    name = "script"
    kind: Kind = "everywhere"

    def launch(self, context: RunContext) -> Launch:
        """Raises MissingProgram when no script is mounted."""
        if not context.script:
            raise MissingProgram(
                "no task script is mounted", "mount one at /workload/task/task-script.sh (chart: task_script)"
            )
        rank = str(context.plan.node_rank(context.index))
        given = {
            "A4_RUN": context.run_id,
            "A4_NODE_RANK": rank,
            "NODE_RANK": rank,
            "MASTER_ADDR": context.plan.peers[0].name,
            "MASTER_PORT": str(context.master_port),
            "A4_HOSTFILE": HOSTFILE,
            "A4_HOSTFILE_1PERNODE": HOSTFILE_ONE_PER_NODE,
        }
        argv = ["bash", context.script, *context.args]
        return Launch(argv, {**context.environ, **given}, added=tuple(given))

    def is_ending(self, output: str, record: str) -> bool:
        return False

    def judge(self, context: RunContext, outcome: Outcome) -> Judgement:
        where = f"pod {context.index}, {context.plan.peers[context.plan.node_rank(context.index)].name}"
        return Judgement(from_status(outcome.status, context.script, where))

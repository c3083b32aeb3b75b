"""`exec`: one command on every pod, beside whatever else runs there."""

from __future__ import annotations

from agent.decide.ending import JobEnd, exit_code
from agent.decide.subset import grouped, pods_text
from agent.decide.words import lines
from agent.errors import Exit, UsageError
from agent.launch import Launch
from agent.workloads.base import Judgement, Outcome, RunContext, Workload, run_variables
from agent.workloads.ends import end_without_failure


class Exec(Workload):
    name = "exec"
    exclusive = False
    fail_fast = False
    has_lives = False

    def check(self, context: RunContext) -> None:
        if not context.args:
            raise UsageError("exec needs a command", "a4-agent exec -- hostname")

    def launch(self, context: RunContext) -> Launch:
        given = {**run_variables(context), "A4_NODE_RANK": str(context.plan.node_rank(context.index))}
        return Launch(context.args, {**context.environ, **given}, context.spec.cwd, tuple(given))

    def judge(self, context: RunContext, outcome: Outcome) -> Judgement:
        """The code of all that failed if it is one and the same, else the greatest."""
        statuses = outcome.statuses or {context.index: outcome.status}
        pods_of = grouped({index: exit_code(status) for index, status in statuses.items() if status})
        command = context.args[0]
        if outcome.cause is not None or not (pods_of or outcome.lost):
            return Judgement(end_without_failure(context, outcome, command))
        codes = "; ".join(f"{code} on {pods_text(pods_of[code])}" for code in sorted(pods_of))
        failures = f"{command} ended with exit code {codes}" if codes else ""
        if outcome.lost:
            what = f"pods were lost during {command}"
            return Judgement(JobEnd(Exit.TRY_AGAIN, what, why=lines(context.losses(outcome.lost), failures)))
        return Judgement(JobEnd(max(pods_of), failures, origin="workload"))

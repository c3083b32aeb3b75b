"""`torchrun`: a program of one's own, by torchrun on every pod."""

from __future__ import annotations

from dataclasses import replace

from agent.decide.ending import JobEnd
from agent.decide.torchrun import torchrun_end, torchrun_launch
from agent.errors import UsageError
from agent.launch import Launch
from agent.paths import shipped
from agent.workloads.base import Judgement, Kind, Outcome, RunContext
from agent.workloads.everywhere import end_without_failure, failed_pod


class Torchrun:
    name = "torchrun"
    kind: Kind = "everywhere"
    exclusive = True
    fail_fast = True

    def launch(self, context: RunContext) -> Launch:
        """Raises UsageError."""
        if not context.args:
            raise UsageError("torchrun needs a program", "a4-agent torchrun -- train.py --epochs 3")
        alone = len(context.plan.peers) == 1  # its name need not be in DNS
        given = {"A4_RUN": context.run_id, "A4_NODE_RANK": str(context.plan.node_rank(context.index))}
        if context.keep_ranks:
            # torchrun takes this for the Python of its workers; what it starts makes it context.workload_python again.
            given["PYTHON_EXEC"] = shipped("entrypoints", "last-words-python.sh")
            given["A4_AGENT_PYTHON"] = context.python
            given["A4_WORKLOAD_PYTHON"] = context.environ.get("PYTHON_EXEC") or context.workload_python
            given["A4_LAST_WORDS"] = context.ranks_output
        launch = torchrun_launch(
            python=context.workload_python,
            nodes=len(context.plan.peers),
            node_rank=context.plan.node_rank(context.index),
            per_node=context.spec.per_node or context.plan.slots,
            address="127.0.0.1" if alone else context.plan.peers[0].name,
            port=context.master_port,
            interface=context.interface,
            args=context.args,
            env={**context.environ, **given},
            cwd=context.spec.cwd,
        )
        return replace(launch, added=(*given, *launch.added))

    def is_ending(self, output: str, record: str) -> bool:
        return False

    def judge(self, context: RunContext, outcome: Outcome) -> Judgement:
        failed = failed_pod(context, outcome)
        if failed is None:
            return Judgement(end_without_failure(outcome, "torchrun"))
        index, status = failed
        found = torchrun_end(status, outcome.output, python=context.workload_python, port=context.master_port)
        end = JobEnd(found.code, found.sentence, context.where(index))
        return Judgement(replace(end, origin="workload") if found.of_program else end)

"""`none`: form the cluster, write the files, and that is all."""

from __future__ import annotations

from agent.decide.ending import JobEnd
from agent.decide.words import count_text
from agent.launch import Launch
from agent.workloads.base import Judgement, Kind, Outcome, RunContext, Workload


class Nothing(Workload):
    name = "none"
    kind: Kind = "nothing"
    has_lives = False

    def launch(self, context: RunContext) -> Launch | None:
        return None

    def judge(self, context: RunContext, outcome: Outcome) -> Judgement:
        return Judgement(JobEnd(0, f"the cluster of {count_text(len(context.plan.peers), 'pod')} is formed"))

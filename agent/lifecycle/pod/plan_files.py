"""The plan, and every file that follows its order."""

from __future__ import annotations

import json

from agent.decide.hostfile import hostfile, hostnames_order, rank_order
from agent.decide.plan import Plan
from agent.lifecycle.pod.pod import Pod
from agent.paths import HOSTFILE, HOSTFILE_ONE_PER_NODE, HOSTNAMES_ORDER, RANK_ORDER


def keep_plan(pod: Pod, plan: Plan) -> None:
    """Know the plan, and write its files. Raises SystemFault."""
    pod.learn(plan=plan)
    names = [peer.name for peer in plan.peers]
    pod.write(HOSTFILE, hostfile(names, plan.slots))
    pod.write(HOSTFILE_ONE_PER_NODE, hostfile(names, 1))
    pod.write(RANK_ORDER, rank_order(plan))
    pod.write(HOSTNAMES_ORDER, hostnames_order(plan))
    pod.write(pod.dir.plan, json.dumps(plan.to_json(), indent=1) + "\n", 0o600)
    pod.state.event("plan-ready")

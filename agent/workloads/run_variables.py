"""What everything that a run starts is told of the run."""

from __future__ import annotations

from agent.workloads.base import RunContext


def run_variables(context: RunContext) -> dict[str, str]:
    """The run's id, its pods in rank order, and its sizes in place of the job's that the pod has.

    What the user has set in the shell stays.
    """
    pods = len(context.plan.peers)
    sizes = {"NNODES": pods, "WORLD_SIZE": context.spec.ranks or context.per_pod * pods}
    return {
        "A4_RUN": context.run_id,
        "A4_RUN_PODS": ",".join(map(str, context.indices)),
        "A4_JOB_NNODES": str(context.job_pods or pods),
        **{name: str(size) for name, size in sizes.items() if name in context.environ and name not in context.spec.env},
    }

"""Starts the stages of a pipeline on a pod (agent/lifecycle/stages)."""

from __future__ import annotations

from collections.abc import Sequence

from agent.decide.pipeline import Pipeline, Stage, describe
from agent.launch import Launch, packed
from agent.paths import package_home
from agent.workloads.base import RunContext
from agent.workloads.run_variables import run_variables


def start_stages(context: RunContext, stages: Sequence[Stage], notes: Sequence[str] = ()) -> Launch:
    """One process of the agent's own Python for all of them. It has the pod's environment, tokens included; what a
    stage's command gets on top is in the stage."""
    pipeline = Pipeline(context.run_id, context.index, context.indices, stages)
    given = {**run_variables(context), "A4_RECORD": context.record, "A4_NOTES_DIR": context.notes_dir}
    return Launch(
        [context.python, "-Es", "-m", "agent.lifecycle.stages", packed(pipeline)],
        {**context.environ, **given},
        package_home(),
        added=list(given),
        notes=notes,
        text=describe(pipeline),
    )

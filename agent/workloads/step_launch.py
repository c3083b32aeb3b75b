"""Runs of several commands: one after the other on the lead (entrypoints/steps.py), or the stages of a pipeline on
every pod (agent/lifecycle/stages)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agent.decide.pipeline import Pipeline, Stage, describe
from agent.launch import Launch, packed
from agent.paths import package_home, shipped
from agent.workloads.base import RunContext, run_variables


class Step(NamedTuple):
    """One command, once for each name: it finds its own in A4_STEP. Once it has printed a line that begins with `ends`,
    or its `record` has an end, it must end soon. `ranks`: where entrypoints/rank.sh records; what fails there fails it.
    Of the JSON file `result` that it writes ("{step}": its name), what it holds of the environment is deleted."""

    names: Sequence[str]
    launch: Launch
    ends: str = ""
    record: str = ""
    result: str = ""
    ranks: str = ""


def start_steps(context: RunContext, steps: Sequence[Step]) -> Launch:
    """One process for all of them, all in the environment of the first but for what the agent gives each."""
    base = dict(steps[0].launch.env)
    told = []
    for step in steps:
        named = step._asdict()
        launch = named.pop("launch")
        env = {n: v for n, v in launch.env.items() if base.get(n) != v}
        told.append({**named, "argv": launch.argv, "env": env})
    return Launch(
        [context.python, "-ES", shipped("entrypoints", "steps.py"), packed(told)],
        {**base, "A4_RECORD": context.record},
        "/",
        added=[*steps[0].launch.added, "A4_RECORD"],
        notes=list(dict.fromkeys(note for step in steps for note in step.launch.notes)),
        steps=[(step.names, step.launch.argv) for step in steps],
    )


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

"""Runs of several commands, one after the other on the lead (entrypoints/steps.py)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.launch import Launch
from agent.paths import shipped
from agent.workloads.base import RunContext


@dataclass(frozen=True)
class Step:
    """One command. Once it has printed a line that begins with `ends`, or its `record` has an end, it must end soon.
    Of the JSON file `result` that it writes, what it holds of the environment is deleted."""

    name: str
    launch: Launch
    ends: str = ""
    record: str = ""
    result: str = ""


def start_steps(context: RunContext, steps: Sequence[Step]) -> Launch:
    """One process for all of them, all in the environment of the first but for what the agent gives each."""
    base = dict(steps[0].launch.env)
    told = [
        {
            "name": step.name,
            "argv": list(step.launch.argv),
            "env": _given(step.launch.env, base),
            "ends": step.ends,
            "record": step.record,
            "result": step.result,
        }
        for step in steps
    ]
    env = {**base, "A4_RECORD": context.record}
    return Launch(
        [context.python, "-IS", shipped("entrypoints", "steps.py"), json.dumps(told)],
        env,
        "/",
        added=[*steps[0].launch.added, "A4_RECORD"],
        notes=list(dict.fromkeys(note for step in steps for note in step.launch.notes)),
        steps=[(step.name, step.launch.argv) for step in steps],
    )


def _given(env: Mapping[str, str], base: Mapping[str, str]) -> dict[str, str]:
    """What differs, and what A4_RECORD of all would hide."""
    return {name: value for name, value in env.items() if base.get(name) != value or name == "A4_RECORD"}

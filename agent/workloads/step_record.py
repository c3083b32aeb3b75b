"""The record of a run of several steps: what carries them out (entrypoints/steps.py, agent/lifecycle/stages) writes a
line when one begins and when it is done."""

from __future__ import annotations

import json
from typing import NamedTuple

from agent import wire


class StepEnd(NamedTuple):
    """How one step went."""

    name: str
    status: int | None = None
    """Negative for a signal; None: nothing says that it ended."""
    stuck: bool = False
    seconds: float | None = None
    passed_over: str = ""
    """Why it was not carried out; empty: it was."""

    @property
    def done(self) -> bool:
        return self.status == 0 and not self.passed_over


def read_steps(record: str) -> list[StepEnd]:
    """The steps that were begun, in their order. Lines that are not whole say nothing."""
    ends: dict[str, StepEnd] = {}
    for line in record.splitlines():
        try:
            told = json.loads(line)
            if told["step"] in ("begin", "done"):
                ends[told["name"]] = wire.from_json(StepEnd, told)
        except (ValueError, KeyError, TypeError):
            continue
    return list(ends.values())


def open_step(record: str) -> str:
    """The step that is being carried out; empty: none is."""
    begun = [step.name for step in read_steps(record) if step.status is None]
    return begun[-1] if begun else ""

"""What each pod finds in the files of an nccl run, as small JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent import wire
from agent.workloads.nccl.json_file import parse_json
from agent.workloads.nccl_logs import Logged, read_logs
from agent.workloads.sweeps import MeasuredSweep

CONNECTIVITY = "connectivity"
MOST_JSON = 5 << 18
"""Characters: a message of the control channel has a limit. What is left out is in the printed table."""


@dataclass(frozen=True)
class Noted(Logged):
    """What one pod found in its files; travels to the coordinator."""

    sweeps: Mapping[str, tuple[MeasuredSweep, ...]] = field(default_factory=dict)
    """What rank 0 wrote as JSON, by step; on the lead."""
    connectivity: str = ""
    """The record of the connectivity test, on the lead."""


def noted(files: Mapping[str, str]) -> Noted:
    """What the files say, whose names begin with their step: NCCL's logs, and on the lead what rank 0 wrote."""
    connectivity = files.get(f"{CONNECTIVITY}.jsonl", "")
    return Noted(**vars(read_logs(files)), sweeps=_measured(files), connectivity=connectivity)


def _measured(files: Mapping[str, str]) -> dict[str, tuple[MeasuredSweep, ...]]:
    """Step → the sweeps of its JSON, as many as a message takes."""
    found: dict[str, tuple[MeasuredSweep, ...]] = {}
    size = 0
    for name in sorted(files):
        sweeps = parse_json(files[name]) if name.endswith(".json") else None
        if sweeps is None:
            continue
        size += len(json.dumps(wire.to_json(sweeps)))
        if size <= MOST_JSON:
            found[name.removesuffix(".json")] = sweeps
    return found

"""What each pod finds in the files of an nccl run, as small JSON, and what the coordinator makes of that."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agent import wire
from agent.decide.words import at_most
from agent.workloads.nccl import debug_log
from agent.workloads.nccl.debug_log import Transport
from agent.workloads.nccl.json_file import parse_json
from agent.workloads.sweeps import Sweep

CONNECTIVITY = "connectivity"
MOST_JSON = 5 << 18
"""Characters: a message of the control channel has a limit. What is left out is in the printed table."""


@dataclass(frozen=True)
class Noted:
    """What one pod found in its files; travels to the coordinator."""

    transport: Mapping[str, Transport] = field(default_factory=dict)
    """How the ranks of this pod went, by step."""
    warnings: Sequence[str] = ()
    nccl: str = ""
    """Version of the library."""
    sweeps: Mapping[str, tuple[Sweep, ...]] = field(default_factory=dict)
    """What rank 0 wrote as JSON, by step; on the lead."""
    connectivity: str = ""
    """The record of the connectivity test, on the lead."""


def noted(files: Mapping[str, str]) -> Noted:
    """What the files say, whose names begin with their step: NCCL's logs, and on the lead what rank 0 wrote."""
    logs: dict[str, list[str]] = {}
    for name in sorted(files):
        if name.endswith(".log"):
            logs.setdefault(name.partition(".")[0], []).append(files[name])
    every = [text for texts in logs.values() for text in texts]
    return Noted(
        transport={step: debug_log.transport(texts) for step, texts in logs.items()},
        warnings=debug_log.warnings(every),
        nccl=debug_log.version(every),
        sweeps=_measured(files),
        connectivity=files.get(f"{CONNECTIVITY}.jsonl", ""),
    )


def _measured(files: Mapping[str, str]) -> dict[str, tuple[Sweep, ...]]:
    """Step → the sweeps of its JSON, as many as a message takes."""
    found: dict[str, tuple[Sweep, ...]] = {}
    size = 0
    for name in sorted(files):
        sweeps = parse_json(files[name]) if name.endswith(".json") else None
        if sweeps is None:
            continue
        size += len(json.dumps(wire.to_json(sweeps)))
        if size <= MOST_JSON:
            found[name.removesuffix(".json")] = sweeps
    return found


class Evidence(NamedTuple):
    """What all pods found in their files."""

    transports: Mapping[str, Mapping[int, Transport]]
    """Step → completion index → how its ranks went."""
    lead: Noted
    warnings: Sequence[str]
    nccl: str
    """Version of the library."""

    @staticmethod
    def of(notes: Mapping[int, Mapping[str, Any]], lead: int) -> Evidence:
        """`notes`: completion index → the JSON of what that pod noted."""
        found = {index: wire.from_json(Noted, notes[index]) for index in sorted(notes)}
        transports: dict[str, dict[int, Transport]] = {}
        warnings: dict[str, None] = {}
        for index, one in found.items():
            for step, transport in one.transport.items():
                transports.setdefault(step, {})[index] = transport
            warnings.update(dict.fromkeys(f"pod {index}: {line}" for line in one.warnings))
        return Evidence(
            transports,
            found.get(lead, Noted()),
            at_most(list(warnings), debug_log.MOST_WARNINGS),
            next((one.nccl for one in found.values() if one.nccl), ""),
        )

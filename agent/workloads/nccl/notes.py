"""What each pod finds in the files of an nccl run, as small JSON, and what the coordinator makes of that."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent.workloads.nccl import debug_log
from agent.workloads.nccl.debug_log import Transport
from agent.workloads.nccl.json_file import parse_json
from agent.workloads.rank_record import at_most
from agent.workloads.sweeps import Sweep

CONNECTIVITY = "connectivity"
MOST_JSON = 1 << 20
"""Characters: a message of the control channel has a limit. What is left out is in the printed table."""


def noted(files: Mapping[str, str]) -> dict[str, Any]:
    """Of files whose names begin with their step: NCCL's logs, and on the lead what rank 0 wrote."""
    logs: dict[str, list[str]] = {}
    for name in sorted(files):
        if name.endswith(".log"):
            logs.setdefault(name.partition(".")[0], []).append(files[name])
    every = [text for texts in logs.values() for text in texts]
    return {
        "transport": {step: debug_log.transport(texts).to_json() for step, texts in logs.items()},
        "warnings": debug_log.warnings(every),
        "nccl": debug_log.version(every),
        "sweeps": _measured(files),
        "connectivity": files.get(f"{CONNECTIVITY}.jsonl", ""),
    }


def _measured(files: Mapping[str, str]) -> dict[str, Any]:
    """Step → the sweeps of its JSON, as many as a message takes."""
    found: dict[str, Any] = {}
    size = 0
    for name in sorted(files):
        report = parse_json(files[name]) if name.endswith(".json") else None
        if report is None:
            continue
        sweeps = [{**one.to_json(), "groups": one.groups, "copies": one.copies} for one in report.sweeps]
        size += len(json.dumps(sweeps))
        if size <= MOST_JSON:
            found[name.removesuffix(".json")] = sweeps
    return found


@dataclass(frozen=True)
class Evidence:
    """What all pods found in their files."""

    transports: Mapping[str, Mapping[int, Transport]]
    """Step → completion index → how its ranks went."""
    sweeps: Mapping[str, Sequence[Sweep]]
    connectivity: str
    warnings: Sequence[str]
    nccl: str

    @staticmethod
    def of(noted: Mapping[int, Mapping[str, Any]], lead: int) -> Evidence:
        """`noted`: completion index → what that pod noted."""
        of_lead = noted.get(lead, {})
        transports: dict[str, dict[int, Transport]] = {}
        warnings: dict[str, None] = {}
        for index, notes in sorted(noted.items()):
            for step, data in notes.get("transport", {}).items():
                transports.setdefault(step, {})[index] = Transport.from_json(data)
            warnings.update(dict.fromkeys(f"pod {index}: {line}" for line in notes.get("warnings", ())))
        return Evidence(
            transports,
            {step: [_sweep(data) for data in sweeps] for step, sweeps in of_lead.get("sweeps", {}).items()},
            of_lead.get("connectivity", ""),
            at_most(list(warnings), debug_log.MOST_WARNINGS),
            next((notes["nccl"] for notes in noted.values() if notes.get("nccl")), ""),
        )


def _sweep(data: Mapping[str, Any]) -> Sweep:
    return replace(Sweep.from_json(dict(data)), groups=data["groups"], copies=data["copies"])

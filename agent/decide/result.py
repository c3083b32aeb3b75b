"""result.json: one schema for all workloads (docs/result.schema.json says what each field is)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent import __version__
from agent.decide.differences import Differences
from agent.decide.ending import JobEnd
from agent.decide.findings import Findings
from agent.decide.plan import Plan, PlannedPeer
from agent.decide.runspec import RunSpec
from agent.errors import Exit

RESULT_VERSION = 2


@dataclass(frozen=True)
class PodResult:
    """One pod's share in a run."""

    status: int | None = None
    """Exit status of its process, negative for a signal; None: it had none or has not said."""
    lost: str = ""
    phases: Mapping[str, float] = field(default_factory=dict)
    """When it reached each phase, in seconds since 1970."""
    inventory: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunResult:
    """All that is known of a run that is over."""

    job: str
    epoch: str
    run: str
    spec: RunSpec
    since: float
    until: float
    end: JobEnd
    plan: Plan
    """Of the pods that took part."""
    pods: Mapping[int, PodResult]
    """By completion index."""
    differences: Differences
    launch: Mapping[str, Any] | None
    """What was started on the lead."""
    findings: Findings

    def to_json(self) -> dict[str, Any]:
        """The content of result.json."""
        limits = {"timeout": self.spec.timeout or 0.0, "stall": self.spec.stall or 0.0}
        return {
            "version": RESULT_VERSION,
            "agent": __version__,
            "job": self.job,
            "epoch": self.epoch,
            "run": self.run,
            "workload": self.spec.workload,
            "args": list(self.spec.args),
            "by": self.spec.by,
            "since": self.since,
            "until": self.until,
            "verdict": verdict(self.end, self.findings.reasons),
            "slots": self.plan.slots,
            "order": {"source": self.plan.source, "warnings": list(self.plan.warnings)},
            "pods": [self._pod(peer) for peer in self.plan.peers],
            "differences": [
                {"what": one.what, "usual": one.usual, "odd": {value: list(pods) for value, pods in one.odd.items()}}
                for one in self.differences.found
            ],
            "launch": self.launch,
            "versions": {"a4-agent": __version__, **self.findings.versions},
            "limits": limits,
            "tables": list(self.findings.tables),
            "sweeps": list(self.findings.sweeps),
            "profile": self.findings.profile,
            "gate": self.findings.gate,
            "record": dict(self.findings.record),
        }

    def _pod(self, peer: PlannedPeer) -> dict[str, Any]:
        found = self.pods.get(peer.index, PodResult())
        return {
            "index": peer.index,
            "name": peer.name,
            "node": peer.node,
            "address": peer.address,
            "place": list(peer.place),
            "status": found.status,
            "lost": found.lost,
            "phases": {**found.phases, **self.findings.phases},
            "inventory": dict(found.inventory),
        }


def verdict(end: JobEnd, reasons: Sequence[str]) -> dict[str, Any]:
    """How a run ended, in the words of result.json."""
    told = end.origin == "agent" and end.code in (Exit.INTERRUPTED, Exit.TERMINATED)
    status = "passed" if end.code == Exit.OK else "ended" if told else "failed"
    return {"status": status, **end.to_json(), "reasons": list(reasons)}


def table(name: str, title: str, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """One of the `tables`; `columns`: name → unit, empty for none."""
    heads = [{"name": column, "unit": unit} for column, unit in columns.items()]
    return {"name": name, "title": title, "columns": heads, "rows": [list(row) for row in rows]}

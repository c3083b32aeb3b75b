"""What a workload measured and found. Every pod's start imports this, and not the types of result.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from agent.decide.result import Sweep, Table, Training


class Findings(NamedTuple):
    """What a workload measured and found, for result.json."""

    reasons: Sequence[str] = ()
    """Every finding that counts against the run, one sentence each."""
    warnings: Sequence[str] = ()
    """What is not as it should be and does not count against it, likewise."""
    tables: Sequence[Table] = ()
    sweeps: Sequence[Sweep] = ()
    trainings: Sequence[Training] = ()
    versions: Mapping[str, str] = {}
    """Name → version, of what was really used."""
    phases: Mapping[str, float] = {}
    """Moments of the whole run, such as `ranks-ready`, in seconds since 1970."""
    record: Mapping[str, Any] = {}
    """What the workload's programs said of themselves."""
    gate: Mapping[str, Any] | None = None
    """How the speed was judged: `status`, `reason` and what was compared; None: it was not."""

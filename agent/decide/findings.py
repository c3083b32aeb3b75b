"""What a workload measured and found, for result.json. Apart from that: every pod's start imports it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Findings:
    """What a workload measured and found."""

    reasons: Sequence[str] = ()
    """Every finding that counts against the run, one sentence each."""
    tables: Sequence[Mapping[str, Any]] = ()
    sweeps: Sequence[Mapping[str, Any]] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    """Name → version, of what was really used."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Moments of the whole run, such as `ranks-ready`, in seconds since 1970."""
    record: Mapping[str, Any] = field(default_factory=dict)
    """What the workload's programs said of themselves."""
    profile: Mapping[str, str] | None = None
    """The fabric profile: `name`, and `why` it was chosen."""
    gate: Mapping[str, Any] | None = None
    """How the speed was judged: `status`, `reason`; None: it was not."""

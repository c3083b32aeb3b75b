"""What was found out about a pod's health."""

from __future__ import annotations

from typing import Literal, NamedTuple

State = Literal["ok", "bad", "unknown"]
Severity = Literal["fatal", "degraded", "information"]


class Finding(NamedTuple):
    """What one check saw on one pod, or on one device of it."""

    check: str
    state: State
    """unknown: it could not look"""
    severity: Severity
    """how much it matters when the state is bad"""
    pod: int
    node: str = ""
    device: str = ""
    value: str = ""
    """what was seen; of an unknown state: why nothing was"""
    limit: str = ""
    """what is right"""
    source: str = ""
    """where the limit is from"""
    action: str = ""
    """what to do when the state is bad"""

"""The workloads of this version, imported when one is asked for."""

from __future__ import annotations

from agent.errors import UsageError
from agent.workloads.base import Workload


def find_workload(name: str) -> Workload:
    """The workload of that name. Raises UsageError for another, which only a pod of another release asks for."""
    if name == "connectivity":
        from agent.workloads.connectivity import Connectivity

        return Connectivity()
    if name == "script":
        from agent.workloads.script import Script

        return Script()
    if name == "none":
        from agent.workloads.nothing import Nothing

        return Nothing()
    raise UsageError(f"this a4-agent has no workload {name!r}", "do all pods run the same release?")

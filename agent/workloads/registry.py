"""The workloads of this version, imported when one is asked for."""

from __future__ import annotations

from agent.workloads.base import Workload


def find_workload(name: str) -> Workload:
    """The workload of that name; settings have refused all others."""
    if name == "connectivity":
        from agent.workloads.connectivity import Connectivity

        return Connectivity()
    if name == "script":
        from agent.workloads.script import Script

        return Script()
    from agent.workloads.nothing import Nothing

    return Nothing()

"""The workloads of this version, imported when one is asked for."""

from __future__ import annotations

from agent.errors import UsageError
from agent.workloads.base import Workload


def find_workload(name: str) -> Workload:
    """The workload of that name. Raises UsageError for another, which only a pod of another release asks for."""
    match name:
        case "collectives":
            from agent.workloads.collectives import Collectives

            return Collectives()
        case "connectivity":
            from agent.workloads.connectivity import Connectivity

            return Connectivity()
        case "ddp":
            from agent.workloads.ddp import Ddp

            return Ddp()
        case "exec":
            from agent.workloads.execute import Exec

            return Exec()
        case "mpirun":
            from agent.workloads.mpirun import Mpirun

            return Mpirun()
        case "none":
            from agent.workloads.nothing import Nothing

            return Nothing()
        case "script":
            from agent.workloads.script import Script

            return Script()
        case "torchrun":
            from agent.workloads.torchrun import Torchrun

            return Torchrun()
    raise UsageError(f"this a4-agent has no workload {name!r}", "do all pods run the same release?")

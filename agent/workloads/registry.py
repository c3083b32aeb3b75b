"""The workloads of this version, imported when one is asked for."""

from __future__ import annotations

from importlib import import_module

from agent.errors import UsageError
from agent.workloads.base import Workload

CLASSES = {
    "collectives": ("collectives", "Collectives"),
    "connectivity": ("connectivity", "Connectivity"),
    "ddp": ("ddp", "Ddp"),
    "deepep": ("deepep", "DeepEp"),
    "exec": ("exec", "Exec"),
    "mpirun": ("mpirun", "Mpirun"),
    "nccl": ("nccl", "Nccl"),
    "none": ("none", "Nothing"),
    "script": ("script", "Script"),
    "torchrun": ("torchrun", "Torchrun"),
}
"""Name → module and class."""


def find_workload(name: str) -> Workload:
    """The workload of that name. Raises UsageError for another, which only a pod of another release asks for."""
    if name not in CLASSES:
        raise UsageError(f"this a4-agent has no workload {name!r}", "do all pods run the same release?")
    module, class_name = CLASSES[name]
    found: Workload = getattr(import_module(f"agent.workloads.{module}"), class_name)()
    return found

"""What runs on a formed cluster: one room per workload, beside it what several share. `agent.catalogue` lists them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from agent.catalogue import WORKLOADS
from agent.errors import UsageError

if TYPE_CHECKING:
    from agent.workloads.base import Workload


def find_workload(name: str) -> Workload:
    """The workload of that name. Raises UsageError for another, which only a pod of another release asks for."""
    if name not in WORKLOADS:
        raise UsageError(f"this a4-agent has no workload {name!r}", "do all pods run the same release?")
    entry = WORKLOADS[name]
    found: Workload = getattr(import_module(entry.module), entry.class_name)()
    return found

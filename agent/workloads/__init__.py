"""What runs on a formed cluster: one room per workload, beside it what several share. `agent.catalogue` lists them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from agent.catalogue import WORKLOADS
from agent.decide.words import did_you_mean
from agent.errors import UsageError
from agent.workloads.showing import Showing

if TYPE_CHECKING:
    from agent.decide.result import Result
    from agent.workloads.base import Workload


def find_workload(name: str) -> Workload:
    """The workload of that name. Raises UsageError for another, which only a pod of another release asks for."""
    if name not in WORKLOADS:
        what = f"this a4-agent has no workload {name!r}{did_you_mean(name, WORKLOADS)}"
        raise UsageError(what, "do all pods run the same release?")
    room = import_module(WORKLOADS[name].room or f"agent.workloads.{name.replace('-', '_')}")
    named = [thing for thing in vars(room).values() if isinstance(thing, type) and getattr(thing, "name", "") == name]
    if len(named) != 1:
        raise LookupError(f"{room.__name__} has {len(named)} classes with name = {name!r}, not one")
    found: Workload = named[0]()
    return found


def shown(result: Result) -> Showing:
    """What its workload shows of it; nothing where this version does not have that workload."""
    return find_workload(result.workload).shown(result) if result.workload in WORKLOADS else Showing()

"""Before a run: do its pods differ where they must not?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from agent.decide.facts import Facts
from agent.decide.inventory import NODES_OWN
from agent.decide.mpirun import mpi_of
from agent.decide.subset import grouped, pods_text
from agent.decide.tables import render

Inventory = Mapping[str, str]
UNKNOWN = ""
MOVING = ("everywhere", "mpi")
"""Kinds of workload that send something between pods."""


class Check(NamedTuple):
    """One thing to compare."""

    what: str
    read: Callable[[Facts, Inventory], str]
    """The pod's value, UNKNOWN when it has not been told."""
    kinds: Sequence[str] = ("nothing", "everywhere", "mpi")
    """Kinds of workload that it matters to."""
    distinct: bool = False
    """Each pod must have a value of its own; else all must have the same."""


def _open_mpi(inventory: Inventory) -> str:
    mpi = mpi_of(inventory)
    return UNKNOWN if mpi is None else "none" if mpi.problem else str(mpi.version)


def _told(name: str, part: str = "") -> Callable[[Facts, Inventory], str]:
    """A text of the inventory: `none` where there is nothing, UNKNOWN where the `part` that says it failed."""

    def read(facts: Facts, inventory: Inventory) -> str:
        unknown = not inventory or f"{part}_problem" in inventory
        return inventory.get(name) or (UNKNOWN if unknown else "none")

    return read


def _nccl(facts: Facts, inventory: Inventory) -> str:
    """The versions alone, torch's own too: where they lie may differ."""
    version, _, _ = _told("nccl", "nccl")(facts, inventory).partition(" ")
    own, _, _ = inventory.get("nccl_torch", "").partition(" ")
    return f"{version}, torch's {own}" if version and own else version


CHECKS = (
    Check("GPUS_PER_NODE", lambda facts, _: str(facts.slots)),
    Check("GPUs that it can open", lambda facts, _: str(facts.gpus)),
    Check("a4-agent", lambda facts, _: facts.version),
    Check("pod address", lambda facts, _: facts.address, distinct=True),
    Check("interface for MPI", lambda facts, _: facts.interface, ("mpi",)),
    Check(
        "interfaces with IPv4",
        lambda facts, _: " ".join(sorted(n for n in facts.addresses if not n.startswith(NODES_OWN))),
        MOVING,
    ),
    Check("Open MPI", lambda _, inventory: _open_mpi(inventory), ("mpi",)),
    Check("mpirun", lambda _, inventory: inventory.get("mpirun", "none" if inventory else UNKNOWN), ("mpi",)),
    Check("GPU model", _told("gpus", "gpus"), MOVING),
    Check("MIG", _told("mig", "gpus"), MOVING),
    Check("NVIDIA driver", _told("driver", "gpus"), MOVING),
    Check("NCCL", _nccl, MOVING),
    Check("torch", _told("torch", "torch"), ("everywhere",)),
    Check("fabric profile", _told("profile"), MOVING),
    Check("MTU", _told("mtu", "nics"), MOVING),
    Check("memory that can be locked", _told("memlock", "resources"), MOVING),
)


class Difference(NamedTuple):
    """One thing in which pods differ where they should not."""

    what: str
    usual: str
    """what most pods have"""
    odd: Mapping[str, Sequence[int]]
    """value → completion indices of the pods that have it"""


class Differences(NamedTuple):
    """What differs. Nothing does where `odd` is empty."""

    odd: Mapping[int, Sequence[str]] = {}
    """Odd pods: completion index → what is odd there."""
    table: str = ""
    """A line per difference, for people."""
    sentence: str = ""
    warning: str = ""
    """The pods that could not be compared in everything, in words; empty: none."""
    found: Sequence[Difference] = ()


def compare(facts: Mapping[int, Facts], inventories: Mapping[int, Inventory], kind: str) -> Differences:
    """Compare pods (by completion index) for a workload of this kind. What most of them have is normal; where no
    value has the most, that of the pod with the lowest index is."""
    odd: dict[int, list[str]] = {}
    found: list[Difference] = []
    unknown: dict[int, list[str]] = {}
    for check in CHECKS:
        if kind not in check.kinds:
            continue
        values = {index: check.read(facts[index], inventories.get(index, {})) for index in sorted(facts)}
        known = {index: value for index, value in values.items() if value != UNKNOWN}
        if not known and all(inventories.get(index) for index in values):
            continue  # all have looked, and none could find it out: nothing says that they differ
        for index in values.keys() - known.keys():
            unknown.setdefault(index, []).append(check.what)
        usual, others = _split(check, known)
        if others:
            found.append(Difference(check.what, usual, others))
        for index in (index for pods in others.values() for index in pods):
            odd.setdefault(index, []).append(check.what)
    warning = f"not compared, because it is not known: {_named(unknown)}" if unknown else ""
    if not odd:
        return Differences(warning=warning)
    sentence = f"pods differ where they must not: {_named(odd)}"
    return Differences(odd, _table(found), sentence, warning, tuple(found))


def _table(found: Sequence[Difference]) -> str:
    odd = [", ".join(f"{value} on {pods_text(pods)}" for value, pods in one.odd.items()) for one in found]
    rows = [[one.what, one.usual, text] for one, text in zip(found, odd, strict=True)]
    return render(["what", "most pods", "odd pods"], rows)


def _named(odd: Mapping[int, Sequence[str]]) -> str:
    """Pods with the same things, together."""
    pods_of = grouped({index: ", ".join(things) for index, things in odd.items()})
    return "; ".join(f"{pods_text(pods)} in {things}" for things, pods in pods_of.items())


def _split(check: Check, values: Mapping[int, str]) -> tuple[str, dict[str, list[int]]]:
    """The normal value in words, and the pods with each value that is odd."""
    pods_of = grouped(values)
    if check.distinct:
        return "one each", {value: pods for value, pods in pods_of.items() if len(pods) > 1}
    usual = max(pods_of, key=lambda value: (len(pods_of[value]), -pods_of[value][0]), default="")
    return usual, {value: pods for value, pods in pods_of.items() if value != usual}

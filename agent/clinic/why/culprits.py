"""Who holds the others up: the ranks at the end of every chain of waits, or a circle, where nobody is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent.clinic.why.edges import Edges
from agent.clinic.why.members import GroupMember
from agent.clinic.why.waits import SAME_SIZES, UNKNOWN, GroupName, Wait, WaitGraph
from agent.decide.diagnosis import Fault


class Blame(NamedTuple):
    """One rank that others wait for, and why."""

    key: int
    fault: Fault
    wait: Wait | None
    """One of those that wait for it directly; None: nobody is known to."""
    waiting: int
    """How many ranks wait for it, directly or through others."""
    instead: str = ""
    """What it entered, or how large."""
    chain: tuple[int, ...] = ()
    """Ranks from one that waits through others to the one that waits for it directly."""


class Blames(NamedTuple):
    """What follows from all waits."""

    blames: tuple[Blame, ...] = ()
    circle: tuple[Wait, ...] = ()
    """Ranks that wait for each other."""
    full: tuple[Wait, ...] = ()
    """Waits in operations that all ranks have entered alike."""
    open: tuple[Wait, ...] = ()
    """Waits for ranks that are not known."""
    unknown: frozenset[int] = frozenset()
    """Ranks that may hold the others up, and of which nobody can tell."""
    differ: tuple[Wait, ...] = ()
    """Waits in an operation that is another, or of another size, for half of the ranks: nobody is in a minority."""
    moves: bool = False
    """Ranks that others wait for go on."""


def judge(picture: WaitGraph) -> Blames:
    """Who holds whom up."""
    waits = picture.waits
    edges = Edges((wait.waiter, wait.blockers) for wait in waits)
    mismatches, differ = _mismatches(waits, edges)
    devices = _devices(waits)
    roots = edges.roots()
    moving = {key for key in roots if picture.members[key].has_moved}
    unseen = {key for key in roots if not picture.is_free(key)}
    nearest = _nearest(waits)
    blames = [_blame(picture.members[key], nearest[key], edges) for key in sorted(roots - moving - unseen)]
    blames += [*mismatches, *devices]
    known = {one.key for one in blames}
    stopped = [one.key for one in picture.members if one.is_stopped and one.key not in known]
    blames += [Blame(key, "stopped", None, 0) for key in stopped]  # even if nobody is seen to wait for them
    sure = {one.key for one in blames}
    # A set of sets first, because most waits share theirs.
    unknown = unseen | (frozenset[int]().union(*{wait.doubtful for wait in waits}) if not blames else set())
    unknown, eliminated = _by_elimination(picture, waits, set(unknown) - sure, bool(blames))
    return Blames(
        blames=tuple(sorted([*blames, *eliminated], key=lambda one: (_WEIGHT[one.fault], -one.waiting, one.key))),
        circle=() if roots or blames or eliminated else _circle(picture, waits, edges),
        full=tuple(one for one in waits if _is_full(one)) if not mismatches and not devices else (),
        open=tuple(one for one in waits if one.is_open and not one.blockers),
        unknown=frozenset(unknown),
        differ=differ,
        moves=bool(moving) or (not waits and any(member.has_moved for member in picture.members)),
    )


_WEIGHT: Mapping[Fault, int] = {
    "dead": 0,
    "stopped": 0,
    "behind": 1,
    "other operation": 2,
    "other size": 2,
    "device": 3,
    "waits": 4,
    "odd": 5,
}


def _nearest(waits: Sequence[Wait]) -> Mapping[int, Wait]:
    """Rank → the wait for it that is told: in a collective operation, and in the earliest one."""
    # False sorts before True, so collective operations come first.
    ordered = sorted(waits, key=lambda wait: (wait.kind != "collective", wait.number or 0))
    firsts = {wait.blockers: wait for wait in reversed(ordered)}
    found: dict[int, Wait] = {}
    for wait in ordered:
        if firsts[wait.blockers] is wait:
            # Once for each set, because 500 ranks that wait for the same 500 share it.
            found |= {key: wait for key in wait.blockers if key not in found}
    return found


def _blame(member: GroupMember, wait: Wait, edges: Edges) -> Blame:
    fault: Fault = "dead" if member.is_dead else "stopped" if member.is_stopped else "behind"
    return Blame(member.key, fault, wait, edges.count(member.key), chain=edges.chain(member.key))


def _is_full(wait: Wait) -> bool:
    return not wait.blockers and not wait.doubtful and not wait.is_open


def _mismatches(waits: Sequence[Wait], edges: Edges) -> tuple[list[Blame], tuple[Wait, ...]]:
    """Where all have entered an operation of one number: those for whom it is another than for most, and those of whom
    none is in a minority."""
    found: list[Blame] = []
    undecided: list[Wait] = []
    by_group: dict[tuple[GroupName, int | None], list[Wait]] = {}
    for wait in waits:
        if wait.kind == "collective" and not wait.blockers:
            by_group.setdefault((wait.group, wait.number), []).append(wait)
    for together in by_group.values():
        fault, values = _difference(together)
        blames = _minority(together, fault, values, edges)
        found += blames
        undecided += [] if blames or len(set(values.values())) < 2 else together
    return found, tuple(undecided)


def _difference(together: Sequence[Wait]) -> tuple[Fault, Mapping[int, str]]:
    """What they entered, where that differs; else how large it was, where that must not differ."""
    names = {wait.waiter: wait.operation for wait in together if wait.operation != UNKNOWN}
    if len(set(names.values())) > 1:
        return "other operation", names
    known = SAME_SIZES.issuperset(names.values())
    return "other size", {wait.waiter: wait.size for wait in together if wait.size} if known else {}


def _minority(together: Sequence[Wait], fault: Fault, values: Mapping[int, str], edges: Edges) -> list[Blame]:
    """Those that differ from more than half."""
    counts = Counter(values.values()).most_common()
    if len(counts) < 2 or counts[0][1] * 2 <= len(together):
        return []
    common = counts[0][0]
    like = next(wait for wait in together if values.get(wait.waiter) == common)
    everybody = {wait.waiter for wait in together}
    reached = everybody | edges.reach(everybody)
    odd = [key for key, value in values.items() if value != common]
    return [Blame(key, fault, like, len(reached) - len(odd), values[key]) for key in odd]


def _devices(waits: Sequence[Wait]) -> list[Blame]:
    """With torch's timing on: ranks whose device has not begun what that of another has."""
    begun: dict[tuple[GroupName, int | None], list[Wait]] = {}
    for wait in waits:
        if wait.started:
            begun.setdefault((wait.group, wait.number), []).append(wait)
    late = [(one, begun.get((one.group, one.number))) for one in waits if one.started is False and _is_full(one)]
    return [Blame(one.waiter, "device", others[0], len(others)) for one, others in late if others]


def _by_elimination(
    picture: WaitGraph, waits: Sequence[Wait], unknown: set[int], blamed: bool
) -> tuple[set[int], list[Blame]]:
    """Looks among ranks whose numbers are not known: the only one left must be it, or those that certainly do something
    else. What stays unknown, and these."""
    seen = {key for key in unknown if not picture.members[key].unseen}
    if blamed or not seen or any(wait.blockers for wait in waits):
        return unknown, []
    sure = {key for key in seen if picture.activities[key].kind == "elsewhere"}
    chosen = sure or {key for key in seen if len(unknown) == 1 and picture.is_free(key)}
    parts = {doubtful: doubtful & chosen for doubtful in {wait.doubtful for wait in waits}}
    edges = Edges((wait.waiter, parts[wait.doubtful]) for wait in waits if parts[wait.doubtful])
    blames = [
        Blame(key, "behind", next(wait for wait in waits if key in wait.doubtful), edges.count(key))
        for key in sorted(chosen)
        if not picture.members[key].has_moved
    ]
    return (unknown - chosen if chosen else unknown), blames


def _circle(picture: WaitGraph, waits: Sequence[Wait], edges: Edges) -> tuple[Wait, ...]:
    """The waits of ranks that wait for each other, directly or through others. Where groups do not tell their ranks:
    all waits, if no rank is outside of one and they are of several groups."""
    inside = edges.circles()
    if not inside and len({wait.waiter for wait in waits}) == len(picture.members):
        groups = {wait.group for wait in waits if wait.kind != "stack"}
        return tuple(waits) if len(groups) > 1 and all(wait.is_open or wait.blockers for wait in waits) else ()
    return tuple(wait for wait in waits if wait.waiter in inside and wait.blockers)

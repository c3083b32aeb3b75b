"""Who holds the others up: the ranks at the end of every chain of waits, or a circle, where nobody is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from agent.decide.diagnosis import Fault
from agent.health.why.waits import SAME_SIZES, UNKNOWN, GroupName, Wait, WaitGraph


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
    mismatches, differ = _mismatches(waits)
    devices = _devices(waits)
    edges = _edges(waits)
    roots = _roots(picture, edges)
    moving = {key for key in roots if picture.members[key].has_moved}
    unseen = {key for key in roots if not picture.is_free(key)}
    blames = [_blame(picture, key, waits, edges) for key in sorted(roots - moving - unseen)]
    blames += [*mismatches, *devices]
    blames += _stopped(picture, blames)
    sure = {one.key for one in blames}
    unknown = unseen | (frozenset[int]().union(*(wait.doubtful for wait in waits)) if not blames else set())
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


def _edges(waits: Iterable[Wait]) -> Mapping[int, frozenset[int]]:
    """Rank → the ranks that it waits for."""
    found: dict[int, frozenset[int]] = {}
    for wait in waits:
        found[wait.waiter] = found.get(wait.waiter, frozenset()) | wait.blockers
    return found


def _roots(picture: WaitGraph, edges: Mapping[int, frozenset[int]]) -> set[int]:
    """Ranks that others wait for and that wait for nobody."""
    waited_for = frozenset[int]().union(*edges.values()) if edges else frozenset()
    return {key for key in waited_for if key not in edges}


def _blame(picture: WaitGraph, key: int, waits: Sequence[Wait], edges: Mapping[int, frozenset[int]]) -> Blame:
    member = picture.members[key]
    direct = [wait for wait in waits if key in wait.blockers]
    chosen = max(direct, key=lambda wait: (wait.kind == "collective", -(wait.number or 0)))
    fault: Fault = "dead" if member.is_dead else "stopped" if member.is_stopped else "behind"
    behind = _reach(key, edges)
    return Blame(key, fault, chosen, len(behind), chain=_chain(key, edges))


def _reach(key: int, edges: Mapping[int, frozenset[int]]) -> set[int]:
    """Ranks that wait for this one, directly or through others."""
    found: set[int] = set()
    new = {key}
    while new:
        new = {waiter for waiter, others in edges.items() if others & new} - found - {key}
        found |= new
    return found


def _chain(key: int, edges: Mapping[int, frozenset[int]]) -> tuple[int, ...]:
    """The longest line of ranks that each wait for one alone, ending at those that wait for `key`."""
    line: list[int] = []
    at = key
    while True:
        before = [waiter for waiter, others in edges.items() if others == {at} and waiter not in line]
        if len(before) != 1 or before[0] == key:
            return tuple(reversed(line)) if len(line) > 1 else ()
        at = before[0]
        line.append(at)


def _is_full(wait: Wait) -> bool:
    return not wait.blockers and not wait.doubtful and not wait.is_open


def _mismatches(waits: Sequence[Wait]) -> tuple[list[Blame], tuple[Wait, ...]]:
    """Where all have entered an operation of one number: those for whom it is another than for most, and those of whom
    none is in a minority."""
    found: list[Blame] = []
    undecided: list[Wait] = []
    by_group: dict[tuple[GroupName, int | None], list[Wait]] = {}
    for wait in waits:
        if wait.kind == "collective" and not wait.blockers:
            by_group.setdefault((wait.group, wait.number), []).append(wait)
    edges = _edges(waits)
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


def _minority(
    together: Sequence[Wait], fault: Fault, values: Mapping[int, str], edges: Mapping[int, frozenset[int]]
) -> list[Blame]:
    """Those that differ from more than half."""
    counts = Counter(values.values()).most_common()
    if len(counts) < 2 or counts[0][1] * 2 <= len(together):
        return []
    common = counts[0][0]
    like = next(wait for wait in together if values.get(wait.waiter) == common)
    everybody = {wait.waiter for wait in together}
    reached = everybody.union(*(_reach(key, edges) for key in everybody))
    odd = [key for key, value in values.items() if value != common]
    return [Blame(key, fault, like, len(reached) - len(odd), values[key]) for key in odd]


def _devices(waits: Sequence[Wait]) -> list[Blame]:
    """With torch's timing on: ranks whose device has not begun what that of another has."""
    found: list[Blame] = []
    for wait in waits:
        if wait.started is not False or not _is_full(wait):
            continue
        same = [one for one in waits if (one.group, one.number) == (wait.group, wait.number)]
        begun = [one for one in same if one.started]
        if begun:
            found.append(Blame(wait.waiter, "device", begun[0], len(begun)))
    return found


def _stopped(picture: WaitGraph, blames: Sequence[Blame]) -> list[Blame]:
    """Ranks that are stopped, even if nobody is seen to wait for them."""
    known = {one.key for one in blames}
    return [Blame(one.key, "stopped", None, 0) for one in picture.members if one.is_stopped and one.key not in known]


def _by_elimination(
    picture: WaitGraph, waits: Sequence[Wait], unknown: set[int], blamed: bool
) -> tuple[set[int], list[Blame]]:
    """Of ranks whose numbers are not known: the one that is left over, or those that certainly do something else."""
    seen = {key for key in unknown if not picture.members[key].unseen}
    if blamed or not seen or any(wait.blockers for wait in waits):
        return unknown, []
    sure = {key for key in seen if key in picture.activities and picture.activities[key].kind == "elsewhere"}
    chosen = sure or {key for key in seen if len(unknown) == 1 and picture.is_free(key)}
    edges = {wait.waiter: wait.doubtful & chosen for wait in waits if wait.doubtful & chosen}
    blames = [
        Blame(key, "behind", next(wait for wait in waits if key in wait.doubtful), len(_reach(key, edges)))
        for key in sorted(chosen)
        if not picture.members[key].has_moved
    ]
    return (unknown - chosen if chosen else unknown), blames


def _circle(picture: WaitGraph, waits: Sequence[Wait], edges: Mapping[int, frozenset[int]]) -> tuple[Wait, ...]:
    """The waits of ranks that wait for each other, directly or through others. Where groups do not tell their ranks:
    all waits, if no rank is outside of one and they are of several groups."""
    inside = {key for key in edges if _reaches_itself(key, edges)}
    if not inside and len({wait.waiter for wait in waits}) == len(picture.members):
        groups = {wait.group for wait in waits}
        return tuple(waits) if len(groups) > 1 and all(wait.is_open or wait.blockers for wait in waits) else ()
    return tuple(wait for wait in waits if wait.waiter in inside and wait.blockers)


def _reaches_itself(key: int, edges: Mapping[int, frozenset[int]]) -> bool:
    found: set[int] = set()
    new = set(edges.get(key, ()))
    while new - found:
        found |= new
        new = {other for one in new for other in edges.get(one, ())}
    return key in found

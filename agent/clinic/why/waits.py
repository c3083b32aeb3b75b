"""Who waits for whom: each rank that is in an operation which cannot end, and the ranks that it ends by."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Literal, NamedTuple

from agent.clinic.why.members import GroupMember
from agent.clinic.why.places import UNNUMBERED, Activity, activity, code_of, main_frames
from agent.clinic.why.records import DEFAULT_GROUP, NO_ENTRIES, GroupProgress, Operation

IN_OPERATIONS = ("collective", "point to point")
UNKNOWN = "operation"
"""Name of an operation of which only the number is known."""
SAME_SIZES = frozenset(
    {"all_reduce", "allreduce", "reduce", "broadcast", "_all_gather_base", "_allgather_base", "_reduce_scatter_base"}
)
"""Operations whose input has the same size on every rank."""


class GroupName(NamedTuple):
    """A process group."""

    name: str
    backend: str
    description: str = ""

    @property
    def text(self) -> str:
        """Empty for that of all ranks."""
        told = self.description if self.description not in ("", "default_pg") else self.name
        return "" if self.name in ("", DEFAULT_GROUP) else told


class Wait(NamedTuple):
    """One rank in one operation that is not over."""

    waiter: int
    kind: Literal["collective", "point to point", "stack"]
    """stack: known by its stack alone, without a number"""
    operation: str
    number: int | None
    group: GroupName
    blockers: frozenset[int]
    """Ranks that have not entered it, or never will."""
    doubtful: frozenset[int] = frozenset()
    """Ranks of the group of which nobody knows whether they have."""
    is_open: bool = False
    """Not all ranks of the group are known."""
    size: str = ""
    started: bool | None = None
    """Its device has begun it; None: torch's timing is off."""


class WaitGraph:
    """All members and what each of them waits for."""

    def __init__(self, members: Sequence[GroupMember], *, are_all: bool = True) -> None:
        """are_all: every rank of the run was seen."""
        self.members = members
        self._are_all = are_all
        self._by_rank = {one.rank: one for one in members if one.rank is not None}
        self.activities: Sequence[Activity] = [
            activity(one.process) if one.process else Activity("unknown") for one in members
        ]

    @cached_property
    def waits(self) -> tuple[Wait, ...]:
        """The waits of all ranks but those that can go on by themselves."""
        found = [*self._collectives(), *self._points()]
        numbered = {wait.waiter for wait in found}
        found += self._by_stack(numbered)
        return tuple(wait for wait in found if self._may_wait(wait.waiter))

    def _may_wait(self, key: int) -> bool:
        """Not one that is stopped or dead, and not one that is certainly at something else."""
        member = self.members[key]
        return not (member.is_dead or member.is_stopped or self.activities[key].kind == "elsewhere")

    @cached_property
    def groups(self) -> Mapping[GroupName, Mapping[int, GroupProgress]]:
        """The ranks that entered each group, with how far they came."""
        found: dict[GroupName, dict[int, GroupProgress]] = {}
        for member in self.members:
            for group in member.groups:
                name = GroupName(group.group, group.backend)
                found.setdefault(name, {})[member.key] = group
        return {_described(name, ranks): ranks for name, ranks in found.items()}

    def ranks_of(self, group: GroupName) -> tuple[frozenset[int], bool]:
        """The group's members, and whether those are all."""
        entered = self.groups.get(group, {})
        named = {rank for one in entered.values() for rank in one.ranks}
        if named:
            known = (self._by_rank.get(rank) for rank in named)
            return frozenset(entered) | {one.key for one in known if one}, True
        if group.name == DEFAULT_GROUP:
            return frozenset(one.key for one in self.members), True
        return frozenset(entered), False

    def _collectives(self) -> Iterator[Wait]:
        for group, entered in self.groups.items():
            everybody, is_whole = self.ranks_of(group)
            lowest = min(one.entered for one in entered.values())
            missing, doubtful = self._outstanding(everybody, entered)
            by_all = lowest if is_whole and not doubtful and not missing(lowest) else 0
            for key, progress in entered.items():
                number = _open_number(progress, lowest, by_all)
                if number is None or (progress.entered_before is not None and progress.entered_before < number):
                    continue  # it is in none, or has come to it only now
                operation = _operation(progress, number)
                yield Wait(
                    key,
                    "collective",
                    operation.name,
                    number,
                    group,
                    missing(number),
                    doubtful,
                    is_open=not is_whole,
                    size=operation.size,
                    started=None if progress.started is None else progress.started >= number,
                )

    def _outstanding(
        self, everybody: Iterable[int], entered: Mapping[int, GroupProgress]
    ) -> tuple[Callable[[int], frozenset[int]], frozenset[int]]:
        """What gives the ranks that have not entered the operation of a number, or never will, one set for each number;
        and those of which nobody knows."""
        never, doubtful, counts = set(), set(), []
        for key in everybody:
            member = self.members[key]
            if member.is_dead or member.is_stopped:
                never.add(key)
            elif key in entered:
                counts.append((entered[key].entered, key))
            elif self._has_recorder(member):
                never.add(key)
            elif self._is_outside(key):
                doubtful.add(key)
        counts.sort()
        numbers, keys = [number for number, _ in counts], [key for _, key in counts]
        missing = cache(lambda number: frozenset(never).union(keys[: bisect_left(numbers, number)]))
        return missing, frozenset(doubtful)

    def _has_recorder(self, member: GroupMember) -> bool:
        """Its recorder answered, if only that there is nothing in it."""
        if member.groups or member.process is None or member.pod is None:
            return bool(member.groups)
        return all(one.why == NO_ENTRIES for one in member.told("recorder") if one.state == "unavailable")

    def is_free(self, key: int) -> bool:
        """It certainly waits for no other rank: what it does is seen, and that is no wait."""
        member = self.members[key]
        at = self.activities[key]
        if member.is_dead or member.is_stopped or (member.process is not None and member.process.holds_gil):
            return True
        if at.kind in IN_OPERATIONS:
            return False
        if at.kind == "elsewhere":
            return True
        has_stack = member.process is not None and bool(member.process.threads)
        numbered = bool(member.groups) and all(group.completed is not None for group in member.groups)
        on_devices = {group.backend == "nccl" for group in member.groups} or {
            name.backend == "nccl" for name in self.groups
        }
        # What waits for its GPU is in the user's code: only its numbers tell that. What gloo does shows in the stack.
        return (numbered and (has_stack or on_devices == {True})) or (has_stack and True not in on_devices)

    def _is_outside(self, key: int) -> bool:
        """Its stack does not say that it is in a collective operation, too."""
        return self.activities[key].kind not in IN_OPERATIONS

    def _points(self) -> Iterator[Wait]:
        for member in self.members:
            at = self.activities[member.key]
            if at.kind == "point to point" and at.peer is not None:
                group = GroupName(DEFAULT_GROUP, "")
                peer = self._by_rank.get(at.peer)
                # A rank of a group is the rank among all only in the group of all.
                in_subgroup = at.in_group and any(group.group != DEFAULT_GROUP for group in member.groups)
                if peer is not None and not in_subgroup:
                    yield Wait(member.key, "point to point", at.operation, None, group, self._unanswered(member, peer))
            for progress in member.groups:
                yield from self._sends(member, progress)

    def _unanswered(self, member: GroupMember, peer: GroupMember) -> frozenset[int]:
        """The peer, unless it sends to the waiter, or receives from it, at this moment."""
        at, mine = self.activities[peer.key], self.activities[member.key]
        meets = at.peer is not None and at.peer == member.rank and at.receives != mine.receives
        return frozenset() if meets else frozenset({peer.key})

    def _sends(self, member: GroupMember, progress: GroupProgress) -> Iterator[Wait]:
        """NCCL numbers the sends and receives of each pair of ranks: "recv 1<-0"."""
        group = GroupName(progress.group, progress.backend, progress.description)
        for operation in progress.sends:
            named = re.fullmatch(r"(send|recv) (\d+)(?:<-|->)(\d+)", operation.name)
            peer = self._peer(progress, int(named[3])) if named else None
            if named is None or peer is None:
                continue
            verb, own, other = named.groups()
            answer = f"send {other}->{own}" if verb == "recv" else f"recv {other}<-{own}"
            theirs = [one for one in peer.groups if one.group == progress.group]
            met = any(one.name == answer and one.number == operation.number for p in theirs for one in p.sends)
            blockers = frozenset() if met and not peer.is_dead and not peer.is_stopped else frozenset({peer.key})
            yield Wait(member.key, "point to point", operation.name, operation.number, group, blockers)
            return  # the first that is open holds up those after it

    def _peer(self, progress: GroupProgress, rank: int) -> GroupMember | None:
        if progress.ranks:
            return self._by_rank.get(progress.ranks[rank]) if rank < len(progress.ranks) else None
        return self._by_rank.get(rank) if progress.group == DEFAULT_GROUP else None

    def _by_stack(self, numbered: set[int]) -> Iterator[Wait]:
        """Ranks without a recorder whose stack is in an operation. No stack tells the ranks that take part in it."""
        for member in self.members:
            at = self.activities[member.key]
            if member.key in numbered or at.kind not in IN_OPERATIONS:
                continue
            numbers_tell = all(group.completed is not None for group in member.groups) and member.groups
            if numbers_tell and at.operation not in UNNUMBERED:
                continue  # it waits for nobody
            group = GroupName(DEFAULT_GROUP, "")
            operation = at.operation or "a collective operation"
            needs_all = (not member.groups or at.operation in UNNUMBERED) and self._has_one_group
            blockers = self._left_out if needs_all else frozenset()
            yield Wait(member.key, "stack", operation, None, group, blockers, self._unseen, is_open=not blockers)

    @cached_property
    def _has_one_group(self) -> bool:
        """No rank knows of another group than that of all: what needs a group needs all ranks."""
        return all(group.name == DEFAULT_GROUP for group in self.groups)

    @cached_property
    def _unseen(self) -> frozenset[int]:
        return frozenset(one.key for one in self.members if one.unseen)

    @cached_property
    def _left_out(self) -> frozenset[int]:
        """The one rank that is in no operation, while all others stay in the same one at the same place of the program.

        Where they are at several places they may be in communicators of some ranks, and none needs that rank.
        """
        outside = [one for one in self.members if self._is_outside(one.key) or one.is_dead or one.is_stopped]
        if not self._are_all or len(outside) != 1 or not self._stays_outside(outside[0]):
            return frozenset()
        others = [one for one in self.members if one.key != outside[0].key]
        inside = [(one.process, self.activities[one.key]) for one in others if one.process]
        codes = [code_of(main_frames(process)) for process, _ in inside]
        shortest = min(map(len, codes), default=0)  # each stack was cut at its outer end
        is_one_place = shortest > 0 and len({code[:shortest] for code in codes}) == 1
        is_one_operation = len({at for _, at in inside}) == 1 and inside[0][1].kind == "collective"
        holds = is_one_place and is_one_operation and all(process.stays for process, _ in inside)
        return frozenset({outside[0].key} if holds else ())

    def _stays_outside(self, member: GroupMember) -> bool:
        """It certainly waits for nobody, and did not at a first look. One that can do nothing is looked at once."""
        process = member.process
        return self.is_free(member.key) and (process is None or process.state not in ("R", "S") or bool(process.stays))


def _open_number(progress: GroupProgress, lowest: int, by_all: int) -> int | None:
    """The operation that it is in: the first that is not over. Without that, the first that not all have entered.

    by_all: the last that the whole group is known to have entered. gloo says late what is over: a rank that has entered
    a later one does not wait in that one.
    """
    if progress.completed is None:
        return lowest + 1 if progress.entered > lowest else None
    if progress.entered <= progress.completed:
        return None
    not_over = progress.completed + 1
    return max(not_over, min(by_all + 1, progress.entered)) if progress.backend == "gloo" else not_over


def _operation(progress: GroupProgress, number: int) -> Operation:
    """The operation of that number; without a name where it is not kept."""
    return next((one for one in progress.recent if one.number == number), Operation(number, UNKNOWN))


def _described(name: GroupName, ranks: Mapping[int, GroupProgress]) -> GroupName:
    return name._replace(description=next((one.description for one in ranks.values() if one.description), ""))

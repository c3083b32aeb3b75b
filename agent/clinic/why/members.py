"""The ranks of a run, wherever their processes are, with all that is known of each."""

from __future__ import annotations

from typing import NamedTuple

from agent.clinic.why.records import Collected, GroupProgress, PodRecords, Process, Source

STOPPED = frozenset("Tt")
DEAD = frozenset({"Z", "X", "gone"})


class GroupMember(NamedTuple):
    """One rank."""

    key: int
    """Its place among all members."""
    rank: int | None
    process: Process | None = None
    """None: no pod showed it."""
    pod: PodRecords | None = None
    children: tuple[Process, ...] = ()
    unseen: str = ""
    """Why nobody could look at it; empty: it was looked at, or there is no such process."""

    @property
    def is_dead(self) -> bool:
        return not self.unseen and (self.process is None or self.process.state in DEAD)

    @property
    def is_stopped(self) -> bool:
        return self.process is not None and self.process.state in STOPPED

    @property
    def groups(self) -> tuple[GroupProgress, ...]:
        return self.process.groups if self.process else ()

    @property
    def has_moved(self) -> bool:
        """One of its operation numbers was lower at the first look."""
        entered = [(one.entered_before, one.entered) for one in self.groups]
        completed = [(one.completed_before, one.completed) for one in self.groups]
        return any(before is not None and now is not None and now > before for before, now in [*entered, *completed])

    def told(self, source: str) -> list[Source]:
        """What that source gave of its process, or of all of its pod."""
        if self.pod is None or self.process is None:
            return []
        pid = self.process.pid
        return [one for one in self.pod.sources if one.name == source and (not one.pids or pid in one.pids)]

    @property
    def name(self) -> str:
        """rank 5; where its rank is not known: process 123."""
        if self.rank is not None:
            return f"rank {self.rank}"
        return f"process {self.process.pid}" if self.process else "a process"

    @property
    def label(self) -> str:
        """rank 5 (pod 2, node gke-7, pid 123)"""
        where = [f"pod {self.pod.pod}"] if self.pod else []
        where += [f"node {self.pod.node}"] if self.pod and self.pod.node else []
        where += [f"pid {self.process.pid}"] if self.process and self.rank is not None else []
        return f"{self.name} ({', '.join(where)})" if where else self.name


def members(collected: Collected) -> tuple[GroupMember, ...]:
    """Every rank, those that no pod showed at the end."""
    found: list[GroupMember] = []
    for pod in collected.pods:
        for process in pod.processes:
            if process.role == "rank":
                if collected.trigger == "watchdog":
                    process = process._replace(state="?")  # it has ended all ranks: their end says nothing
                children = tuple(one for one in pod.processes if one.parent == process.pid and one.role != "rank")
                found.append(GroupMember(len(found), process.rank, process, pod, children))
    return tuple(_unique(found) + _absent(collected, found))


def blind_pods(collected: Collected) -> list[str]:
    """Why pods may not have shown all of their ranks."""
    reasons = [f"pod {pod} gave no records: {why}" for pod, why in sorted(collected.silent.items())]
    cut = [pod for pod in collected.pods if "processes" in pod.left_out]
    reasons += [f"pod {pod.pod} could not tell of all: left out {pod.left_out}" for pod in cut]
    failed = [(pod.pod, one.why) for pod in collected.pods for one in pod.sources if one.name == "processes"]
    return reasons + [f"pod {pod} gave no records: {why}" for pod, why in failed]


def _unique(found: list[GroupMember]) -> list[GroupMember]:
    """A rank that was started again lives: what is left of its first process is not the rank. Nor is one that only has
    its number, as a shell around it or a program beside it."""
    best: dict[int, tuple[bool, bool]] = {}
    for one in found:
        if one.rank is not None:
            best[one.rank] = max(best.get(one.rank, (False, False)), _weight(one))
    kept: list[GroupMember] = []
    dead: set[int] = set()
    for one in found:
        if one.rank is None or (_weight(one) == best[one.rank] and one.rank not in dead):
            kept.append(one._replace(key=len(kept)))
            dead |= {one.rank} if one.rank is not None and one.is_dead else set()
    return kept


def _weight(member: GroupMember) -> tuple[bool, bool]:
    return not member.is_dead, bool(member.groups)


def _absent(collected: Collected, found: list[GroupMember]) -> list[GroupMember]:
    """Ranks that are known by their number alone: the launcher's, and those that groups name."""
    seen = {one.rank for one in found}
    if None in seen:
        return []
    named = {rank for one in found for group in one.groups for rank in group.ranks}
    missing = sorted((named | set(range(collected.ranks or 0))) - seen)
    reasons = blind_pods(collected)
    reasons += ["it left no dump"] if collected.trigger == "watchdog" and not reasons else []
    unseen = "; ".join(reasons)
    start = len(_unique(found))
    return [GroupMember(start + at, rank, unseen=unseen) for at, rank in enumerate(missing)]

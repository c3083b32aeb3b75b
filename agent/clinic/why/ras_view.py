"""What NCCL's RAS says of a run's ranks, for ranks that keep no recorder, and beside those that do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agent.clinic.why.members import GroupMember
from agent.clinic.why.records import Ras, RasCommunicator, RasCount, RasRank
from agent.decide.words import plural

ALL = ""
"""Stands for all operations together."""


class RasView(NamedTuple):
    """What follows from one answer."""

    behind: frozenset[int] = frozenset()
    """Members with the fewest operations of a communicator whose counts differ."""
    silent: frozenset[int] = frozenset()
    """Members that RAS cannot reach, or has given up."""
    others: int = 0
    """Ranks of those communicators that launched more."""
    operation: str = ""
    """The operation whose counts differ, where RAS counts each."""
    text: str = ""
    moves: bool = False
    """Counts were lower at the query before."""
    is_ours: bool | None = True
    """It is about the run. None: it names no process, and another job may listen at that address."""


def view(ras: Ras, members: Sequence[GroupMember]) -> RasView:
    """Which members the answer is about. Counts that differ in several communicators blame nobody: a rank may be
    behind in one because it waits in another."""
    known = [rank for one in ras.communicators for rank in (*one.odd, *one.missing) if rank.pid > 0]
    differing = [(one, fewest) for one in ras.communicators if (fewest := least(one.counts))]
    found = RasView(
        silent=_keys([rank for rank in known if rank.status in ("unresponsive", "dead")], members),
        text=_text(ras, differing),
        moves=ras.moves,
        is_ours=_is_ours(ras, known, members),
    )
    if len(differing) != 1:
        return found
    ((communicator, fewest),) = differing
    ranks = set(numbers(fewest.ranks))
    behind = _keys([one for one in communicator.odd if one.rank in ranks], members)
    return found._replace(behind=behind, others=communicator.size - len(ranks), operation=fewest.operation)


def _is_ours(ras: Ras, known: Sequence[RasRank], members: Sequence[GroupMember]) -> bool | None:
    if _keys([*ras.here, *known], members):
        return True
    if ras.here or (known and not ras.is_of_run):
        return False
    return ras.is_of_run or None


def _keys(ranks: Iterable[RasRank], members: Sequence[GroupMember]) -> frozenset[int]:
    """The members with those pids on pods with those addresses."""
    processes = {(rank.pid, rank.host) for rank in ranks}
    return frozenset(
        one.key
        for one in members
        if one.process and one.pod and any((one.process.pid, host) in processes for host in one.pod.hosts)
    )


def _text(ras: Ras, differing: Sequence[tuple[RasCommunicator, RasCount]]) -> str:
    """ "MISMATCH; in communicator 0x1234 rank 1 launched 55 operations, the others more" """
    lines = [ras.status]
    for one, fewest in differing[:2]:
        operations = f"{fewest.operation} operations" if fewest.operation else "operations"
        ranks = f"{plural('rank', numbers(fewest.ranks))} {fewest.ranks}"
        lines.append(f"in communicator {one.name} {ranks} launched {fewest.count} {operations}, the others more")
    missing = [rank for one in ras.communicators for rank in one.missing]
    lines += [f"no answer from process {rank.pid} on {rank.host}" for rank in missing[:2] if rank.pid > 0]
    if ras.status == "OK":
        lines = ["OK, which says only that all counts are equal"]
    return "; ".join(lines)


def least(counts: Iterable[RasCount]) -> RasCount | None:
    """The ranks with the fewest operations, where the counts differ: of all together, else of the one that differs."""
    by_operation: dict[str, list[RasCount]] = {}
    for one in counts:
        by_operation.setdefault(one.operation, []).append(one)
    chosen = [by_operation[ALL]] if ALL in by_operation else by_operation.values()
    differing = [of_it for of_it in chosen if len(of_it) > 1]
    return min(differing[0], key=lambda one: one.count) if len(differing) == 1 else None


def numbers(text: str) -> list[int]:
    """ "0-2,5" → [0, 1, 2, 5]"""
    found: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        found += range(int(first), int(last or first) + 1)
    return found

"""What each source gave, over all pods: found, unavailable and why, or in contradiction to what was decided."""

from __future__ import annotations

from collections.abc import Sequence

from agent.clinic.why.deciding import Decision
from agent.clinic.why.members import GroupMember
from agent.clinic.why.records import Collected, PodRecords, Source
from agent.decide.diagnosis import SourceName, SourceSaid
from agent.decide.subset import grouped, pods_text, ranges
from agent.decide.words import count_text

MOST_REASONS = 8
"""Lines about one source for each of its states."""
NAMES: tuple[SourceName, ...] = ("processes", "recorder", "dump", "ras", "stacks")


def sources(decision: Decision) -> tuple[SourceSaid, ...]:
    """In the order of NAMES; one line for each state and reason."""
    collected, members = decision.collected, decision.members
    found: list[SourceSaid] = []
    for name in NAMES:
        found += _ras(decision) if name == "ras" else _one(collected, members, name)
    silent = [
        SourceSaid("processes", "unavailable", f"{pods_text(pods)} gave no records: {why}")
        for why, pods in grouped(collected.silent).items()
    ]
    found += _some(silent)
    cut = grouped({pod.pod: pod.left_out for pod in collected.pods if pod.left_out})
    found += _some(
        [SourceSaid("processes", "found", f"{pods_text(pods)} left out {what}") for what, pods in cut.items()]
    )
    return tuple(found)


def _one(collected: Collected, members: Sequence[GroupMember], name: SourceName) -> list[SourceSaid]:
    count = sum(_has(member, name) for member in members)
    found = [SourceSaid(name, "found", f"{count} of {count_text(len(members), 'rank')}")] if count else []
    return found + _unavailable(collected, members, name)


def _has(member: GroupMember, name: SourceName) -> bool:
    process = member.process
    if process is None:
        return False
    if name == "stacks":
        return bool(process.threads)
    if name == "processes":
        return process.state not in ("?", "gone")
    by_dump = any(one.state == "found" for one in member.told("dump"))
    return bool(process.groups) and by_dump == (name == "dump")


def _unavailable(collected: Collected, members: Sequence[GroupMember], name: SourceName) -> list[SourceSaid]:
    """Each reason once, with the ranks or the pods that have it."""
    by_reason: dict[str, list[tuple[PodRecords, Source]]] = {}
    for pod in collected.pods:
        for source in pod.sources:
            if source.name == name and source.state == "unavailable":
                by_reason.setdefault(source.why, []).append((pod, source))
    return _some(
        [
            SourceSaid(name, "unavailable", f"{_whose(where, members)}: {why or 'no reason is known'}")
            for why, where in by_reason.items()
        ]
    )


def _some(said: list[SourceSaid]) -> list[SourceSaid]:
    """The first, and how many more there are."""
    more = len(said) - MOST_REASONS
    return said if more <= 0 else [*said[:MOST_REASONS], said[-1]._replace(text=f"and {more} more like these")]


def _whose(where: Sequence[tuple[PodRecords, Source]], members: Sequence[GroupMember]) -> str:
    pods = {pod.pod for pod, _ in where}
    if any(not source.pids for _, source in where):
        return pods_text(pods)
    processes = {(pod.pod, pid) for pod, source in where for pid in source.pids}
    ranks = [
        one.rank
        for one in members
        if one.pod and one.process and (one.pod.pod, one.process.pid) in processes and one.rank is not None
    ]
    if ranks:
        return f"{'rank' if len(ranks) == 1 else 'ranks'} {ranges(ranks)}"
    return f"{count_text(len(processes), 'pid')} on {pods_text(pods)}"


def _ras(decision: Decision) -> list[SourceSaid]:
    ras, members = decision.ras, decision.members
    if ras is None:
        return _unavailable(decision.collected, members, "ras")
    if ras.is_ours is None:
        return [SourceSaid("ras", "found", f"{ras.text}; it names no process, so another job on the node may be meant")]
    if not ras.is_ours:
        return [SourceSaid("ras", "unavailable", "it answered for another job on the node: its processes are not ours")]
    if ras.behind and decision.blamed and not ras.behind & decision.blamed:
        named = ", ".join(members[key].name for key in sorted(ras.behind))
        text = f"{ras.text}; so {named} would be behind, which the others do not confirm"
        return [SourceSaid("ras", "contradicts", text)]
    return [SourceSaid("ras", "found", ras.text)]

"""What find-slow says: the table, what to do, findings, files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from agent.decide.ending import JobEnd
from agent.decide.finding import Finding, State
from agent.decide.leaving_out import nodes_of, without_them
from agent.decide.location import location_text
from agent.decide.plan import PlannedPeer
from agent.decide.result import Table, table
from agent.decide.subset import pods_text
from agent.decide.tables import render
from agent.decide.words import at_most, count_text, is_are, lines
from agent.errors import Exit
from agent.workloads.find_slow.fitting import PairSpeed
from agent.workloads.find_slow.verdict import PairVerdict, SlowNode

CHECK = "TCP to other pods"
SOURCE = "the other pairs of this run that are as far apart"
MOST_ROWS = 12
COLUMNS = {"pod": "", "node": "", "pairs": "", "MB/s": "MB/s", "of usual": "", "state": ""}
LOOK = "on the pod, a4-agent doctor; on GKE, kubectl label node {} cloud.google.com/fault-behavior=PERFORMANCE"


class Told(NamedTuple):
    """A verdict in words."""

    end: JobEnd
    reasons: Sequence[str]
    table: str
    text: str
    tables: Sequence[Table]
    found: Sequence[Finding]
    files: Mapping[str, str]


def tell(peers: Sequence[PlannedPeer], measured: Sequence[PairSpeed], verdict: PairVerdict) -> Told:
    speeds: dict[int, list[float]] = {rank: [] for rank in range(len(peers))}
    for one in measured:
        for rank in one.pair:
            speeds[rank].append(one.speed)
    rows = [_row(peers, rank, speeds[rank], verdict) for rank in _worst_first(verdict)]
    shown = render(tuple(COLUMNS), rows[:MOST_ROWS], right=(4,), columns=80)
    if more := len(rows) - MOST_ROWS:
        shown += f"and {count_text(more, 'more pod')}\n" if more > 0 else ""
    reasons = _reasons(peers, verdict)
    doubts = _doubts(peers, verdict)
    code = Exit.WRONG_RESULT if reasons else Exit.OK
    what = _sentence(peers, verdict, reasons, doubts)
    advice = _advice(peers, verdict)
    text = "\n".join([f"find-slow: {what}", *(f"  {one}" for one in [*at_most(reasons), *doubts]), "", shown, *advice])
    return Told(
        end=JobEnd(code, what, why=lines(*at_most(reasons)), origin="workload"),
        reasons=reasons,
        table=shown,
        text=text,
        tables=[table("find-slow-pods", "TCP between pairs of pods, the slower direction", COLUMNS, rows)],
        found=[*(_finding(peers, rank, verdict) for rank in range(len(peers))), *_link_findings(peers, verdict)],
        files=_files(peers, verdict),
    )


def _worst_first(verdict: PairVerdict) -> list[int]:
    slow = sorted(verdict.slow, key=lambda one: one.share)
    return [*(one.node for one in slow), *verdict.unclear, *sorted(verdict.cleared)]


def _row(peers: Sequence[PlannedPeer], rank: int, speeds: Sequence[float], verdict: PairVerdict) -> list[str | float]:
    slow = next((one for one in verdict.slow if one.node == rank), None)
    said = _state(slow) if slow else "cannot tell" if rank in verdict.unclear else "ok"
    share = f"{slow.share:.0%}" if slow else "-"
    node = peers[rank].node or "-"
    return [peers[rank].index, node, len(speeds), f"{median(speeds):.1f}" if speeds else "-", share, said]


def _state(slow: SlowNode) -> str:
    return "slow" if slow.share else "hangs"


def _reasons(peers: Sequence[PlannedPeer], verdict: PairVerdict) -> list[str]:
    """What counts against the run."""
    found = []
    for one in verdict.slow:
        how = f"has {one.share:.0%} of the usual speed" if one.share else "hangs: nothing comes through"
        found.append(f"{peers[one.node].where}: {how} with all of {count_text(one.pairs, 'good partner')}")
    if len(peers) == 2 and verdict.dead:
        found.append(f"nothing comes through between {peers[0].where}, and {peers[1].where}: one of the two hangs")
    for pair in verdict.ways.links:
        found.append(f"the way between {pods_text(peers[rank].index for rank in pair)} is slow each time")
    for place in verdict.ways.borders:
        found.append(f"all ways into {location_text(place)} are slow; inside it, and elsewhere, they are not")
    if verdict.ways.fabric:
        found.append("many ways between good pods are slow, and no place is common to them: look at the network")
    return found


def _doubts(peers: Sequence[PlannedPeer], verdict: PairVerdict) -> list[str]:
    """What does not count against it."""
    found = []
    if len(peers) == 2:
        found.append("two pods cannot be compared: only a hang is found")
    elif verdict.unclear:
        unclear = pods_text(peers[rank].index for rank in verdict.unclear)
        found.append(f"cannot tell: {unclear}, too few pairs that can be compared")
    if verdict.ways.once:
        found.append(f"{count_text(verdict.ways.once, 'pair')} of good pods slow for once, which is no finding")
    if len(peers) > 2 and verdict.seen > 0.25:
        found.append(f"speeds scatter: only who has lost {verdict.seen:.0%} or more is found; try --seconds 5")
    return found


def _sentence(peers: Sequence[PlannedPeer], verdict: PairVerdict, reasons: Sequence[str], doubts: Sequence[str]) -> str:
    pods = count_text(len(peers), "pod")
    if verdict.slow:
        named = pods_text(peers[one.node].index for one in verdict.slow)
        words = sorted({_state(blamed) for blamed in verdict.slow}, reverse=True)
        kinds = {"slow": f"{is_are(verdict.slow)} slow", "hangs": "hangs" if len(verdict.slow) == 1 else "hang"}
        return f"{named} of {len(peers)} " + " or ".join(kinds[word] for word in words)
    if reasons:
        return f"a way between the {pods} is slow or dead"
    return f"none of {pods} is known to be slow" if verdict.unclear else f"none of {pods} is slow"


def _advice(peers: Sequence[PlannedPeer], verdict: PairVerdict) -> list[str]:
    """What to type next."""
    if not verdict.slow:
        return []
    if not verdict.excludable:
        return ["more than a fifth of the pods: look at the cluster before you leave them out"]
    slow = [peers[one.node] for one in verdict.slow]
    labels = [f"GKE: kubectl label node {node} cloud.google.com/fault-behavior=PERFORMANCE" for node in nodes_of(slow)]
    return [*without_them(peers, {peer.index for peer in slow}), *labels]


def _finding(peers: Sequence[PlannedPeer], rank: int, verdict: PairVerdict) -> Finding:
    peer = peers[rank]
    slow = next((one for one in verdict.slow if one.node == rank), None)
    state: State = "bad" if slow else "unknown" if rank in verdict.unclear else "ok"
    value = f"{slow.share:.0%} of the usual speed" if slow else ""
    value = "nothing comes through" if slow and not slow.share else value
    value = "too few pairs can be compared" if state == "unknown" else value
    limit = f"more than {1 - verdict.seen:.0%} of the usual speed"
    action = LOOK.format(peer.known_node or "NODE") if slow else ""
    return Finding(CHECK, state, "fatal", peer.index, peer.node, "", value, limit, SOURCE, action)


def _link_findings(peers: Sequence[PlannedPeer], verdict: PairVerdict) -> list[Finding]:
    found = []
    for one, other in verdict.ways.links:
        peer, to = peers[one], f"to pod {peers[other].index}"
        limit = f"more than {1 - verdict.seen:.0%} of the usual speed"
        action = "look at cables and switches on the way; other ways from both pods are good"
        value = "slow each time"
        found.append(Finding(CHECK, "bad", "degraded", peer.index, peer.node, to, value, limit, SOURCE, action))
    return found


def _files(peers: Sequence[PlannedPeer], verdict: PairVerdict) -> dict[str, str]:
    """Names of nodes, a line each, where they are known; else of pods."""
    bad = {one.node for one in verdict.slow}
    name = {rank: peer.known_node or peer.name for rank, peer in enumerate(peers)}
    return {
        "failing_nodes.txt": "".join(f"{name[rank]}\n" for rank in sorted(bad)),
        "passing_nodes.txt": "".join(f"{name[rank]}\n" for rank in sorted(verdict.cleared - bad)),
    }


def pairs_json(peers: Sequence[PlannedPeer], measured: Sequence[PairSpeed]) -> list[dict[str, object]]:
    """For the record in result.json; null: a time-out."""
    return [
        {"round": one.round + 1, "pods": [peers[rank].index for rank in one.pair], "MB/s": one.speed or None}
        for one in measured
    ]

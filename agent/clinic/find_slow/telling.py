"""What find-slow says: the table, what to do, findings, files."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from agent.clinic.find_slow.fitting import LEAST_LOSS, PairSpeed
from agent.clinic.find_slow.verdict import PairVerdict, SlowNode
from agent.decide.facts import Finding, State
from agent.decide.leaving_out import nodes_of, report_node, without_them
from agent.decide.location import location_text
from agent.decide.plan import PlannedPeer
from agent.decide.result import Result, Table, table
from agent.decide.subset import pods_text, ranges
from agent.decide.tables import render
from agent.decide.words import at_most, count_text, is_are, plural
from agent.workloads.showing import NodeShares, PairMap

NAMES = {"tcp": "TCP", "gloo": "gloo", "nccl": "NCCL"}
SOURCE = "the other pairs of this run that are as far apart"
EXCLUDED_SHARE = 0.2
"""So many pods at most are left out: more of them slow is a fault of the cluster."""
MOST_ROWS = 12
TABLE = "find-slow-pods"
COLUMNS = {"pod": "", "node": "", "pairs": "", "MB/s": "MB/s", "of usual": "%", "state": ""}
LOOK = "on the pod, a4-agent doctor; {}"
FEW = 8
"""Fewer pods have few pairs that are as far apart."""
UNCLEAR = "no pair is clearly good, and too few are clearly slow"


class ToldVerdict(NamedTuple):
    """A verdict in words."""

    what: str
    """One sentence."""
    reasons: Sequence[str]
    table: str
    text: str
    """Below the sentence: reasons, doubts, the table, what to type."""
    tables: Sequence[Table]
    found: Sequence[Finding]
    files: Mapping[str, str]


def tell(
    peers: Sequence[PlannedPeer],
    measured: Sequence[PairSpeed],
    verdict: PairVerdict,
    over: str,
    gpus: Mapping[tuple[int, int], bool],
    alone: Mapping[int, str],
) -> ToldVerdict:
    """`gpus`: (node rank, GPU) → whether it is slow by itself, of those that were measured so. `alone`: node rank →
    what of it is slow by itself, "GPU 1 and NVLink"."""
    parts = {one.node: part_text(one, gpus) for one in verdict.slow}
    slow = [one.node for one in sorted(verdict.slow, key=lambda one: one.share)]
    worst_first = dict.fromkeys([*slow, *sorted(alone), *verdict.unclear, *sorted(verdict.cleared)])
    rows = [_row(peers, rank, measured, verdict, {**alone, **parts}) for rank in worst_first]
    texts = [
        [*first, None if speed is None else f"{speed:.1f}", None if usual is None else f"{usual:.0f}%", said]
        for *first, speed, usual, said in rows[:MOST_ROWS]
    ]
    shown = render(tuple(COLUMNS), texts, right=(3, 4), columns=80)
    if (more := len(rows) - MOST_ROWS) > 0:
        shown += f"and {count_text(more, 'more pod')}\n"
    reasons = _reasons(peers, verdict, parts)
    bad = {*parts, *alone}
    advice = _advice(peers, bad)
    notes = [f"  {one}" for one in [*at_most(reasons), *_doubts(peers, verdict)]]
    check = f"{NAMES[over]} to other pods"
    found = [_finding(peers, rank, verdict, parts, check) for rank in range(len(peers))]
    return ToldVerdict(
        what=_sentence(peers, verdict, reasons, parts),
        reasons=reasons,
        table=shown,
        text="\n".join([*notes, "", shown, *(advice and [*advice, ""])]),
        tables=[table(TABLE, f"{NAMES[over]} between pairs of pods, the slower direction", COLUMNS, rows)],
        found=[*found, *_link_findings(peers, verdict, check)],
        files=_files(peers, bad, verdict.cleared - bad),
    )


def part_text(slow: SlowNode, gpus: Mapping[tuple[int, int], bool]) -> str:
    """Which part of a node is slow; empty: all of it. What is slow on a rail is its NIC, if the GPU is well alone."""
    own = [alone for (node, _), alone in gpus.items() if node == slow.node]
    if own and not slow.rails and slow.share and not any(own):
        return "network"
    named: dict[str, list[int]] = {}
    for rail in slow.rails:
        alone = gpus.get((slow.node, rail))
        named.setdefault("GPU or NIC" if alone is None else "GPU" if alone else "NIC", []).append(rail)
    return " and ".join(f"{what} {ranges(rails)}" for what, rails in named.items())


def _row(
    peers: Sequence[PlannedPeer],
    rank: int,
    measured: Sequence[PairSpeed],
    verdict: PairVerdict,
    parts: Mapping[int, str],
) -> tuple[int, str | None, int, float | None, float | None, str]:
    """One of COLUMNS for the table; None: not known."""
    slow = next((one for one in verdict.slow if one.node == rank), None)
    rails = {*slow.rails} if slow else set()
    speeds = [one.speed for one in measured if rank in one.pair and (not rails or one.rail in rails)]
    pairs = len({(one.round, one.pair) for one in measured if rank in one.pair})
    how = _state(slow) if slow else "slow"
    said = f"{parts[rank]} {how}".strip() if rank in parts else "cannot tell" if rank in verdict.unclear else "ok"
    share = slow.share if slow else verdict.shares.get(rank)
    usual = None if share is None else round(100 * share, 1)
    return peers[rank].index, peers[rank].node or None, pairs, median(speeds) if speeds else None, usual, said


def _state(slow: SlowNode) -> str:
    return "slow" if slow.share else "hangs"


def _reasons(peers: Sequence[PlannedPeer], verdict: PairVerdict, parts: Mapping[int, str]) -> list[str]:
    """What counts against the run."""
    found = []
    for one in verdict.slow:
        how = f"has {one.share:.0%} of the usual speed" if one.share else "hangs: nothing comes through"
        where = f"{peers[one.node].where}{parts[one.node] and ', '}{parts[one.node]}"
        alone = "; it is the only pod in its place, so the link to that place may be at fault" if one.alone else ""
        found.append(f"{where}: {how} in {count_text(one.pairs, 'pair')} with good pods{alone}")
    if len(peers) == 2 and verdict.dead:
        found.append(f"nothing comes through between {peers[0].where}, and {peers[1].where}: one of the two hangs")
    rails = f", on {plural('rail', verdict.ways.rails)} {ranges(verdict.ways.rails)}" if verdict.ways.rails else ""
    for pair in verdict.ways.links:
        found.append(f"the link between {pods_text(peers[rank].index for rank in pair)} was slow in every round{rails}")
    for place in verdict.ways.borders:
        found.append(f"all links into {location_text(place)} are slow{rails}; those inside it and elsewhere are not")
    if verdict.ways.fabric:
        found.append(f"many links between good pods are slow{rails} and have no place in common: check the network")
    if slow := verdict.ways.slow_rails:
        found.append(f"{plural('rail', slow)} {ranges(slow)} {is_are(slow)} slow between all pods: check its switches")
    return found


def _doubts(peers: Sequence[PlannedPeer], verdict: PairVerdict) -> list[str]:
    """What does not count against it."""
    found = []
    if len(peers) == 2:
        found.append("pairs of two pods cannot be compared with others: they show only a hang")
    elif verdict.unclear:
        unclear = pods_text(peers[rank].index for rank in verdict.unclear)
        again = "try --seconds 5, or more pods" if len(peers) < FEW else "try --seconds 5"
        found.append(f"cannot tell: {unclear} ({UNCLEAR}); {again}")
    if verdict.ways.once:
        was = "was" if verdict.ways.once == 1 else "were"
        found.append(f"{count_text(verdict.ways.once, 'pair')} of good pods {was} slow only once: not counted")
    if len(peers) > 2 and verdict.seen > 0.25:
        found.append(f"measurements vary: only a pod that lost {verdict.seen:.0%} or more is found; try --seconds 5")
    return found


def _sentence(
    peers: Sequence[PlannedPeer], verdict: PairVerdict, reasons: Sequence[str], parts: Mapping[int, str]
) -> str:
    pods = count_text(len(peers), "pod")
    if verdict.slow:
        named = pods_text(peers[one.node].index for one in verdict.slow)
        part = f"{parts[verdict.slow[0].node]} of " if len(verdict.slow) == 1 and parts[verdict.slow[0].node] else ""
        words = sorted({_state(blamed) for blamed in verdict.slow}, reverse=True)
        kinds = {"slow": f"{is_are(verdict.slow)} slow", "hangs": "hangs" if len(verdict.slow) == 1 else "hang"}
        return f"{part}{named} of {len(peers)} " + " or ".join(kinds[word] for word in words)
    if reasons:
        return f"a link between the {pods} is slow or dead"
    return f"none of {pods} is known to be slow" if verdict.unclear else f"none of {pods} is slow"


def _advice(peers: Sequence[PlannedPeer], bad: Collection[int]) -> list[str]:
    """What to type next."""
    if len(bad) > max(1, int(EXCLUDED_SHARE * len(peers))):
        return ["more than a fifth of the pods: look at the cluster before you leave them out"]
    slow = [peers[rank] for rank in sorted(bad)]
    reports = [report_node(node, "PERFORMANCE") for node in nodes_of(slow) or [""] * bool(slow)]
    return [*without_them(peers, {peer.index for peer in slow}), *reports]


def _finding(
    peers: Sequence[PlannedPeer], rank: int, verdict: PairVerdict, parts: Mapping[int, str], check: str
) -> Finding:
    peer = peers[rank]
    slow = next((one for one in verdict.slow if one.node == rank), None)
    state: State = "bad" if slow else "unknown" if rank in verdict.unclear else "ok"
    value = f"{slow.share:.0%} of the usual speed" if slow else ""
    value = "nothing comes through" if slow and not slow.share else value
    value = UNCLEAR if state == "unknown" else value
    limit = f"more than {1 - verdict.seen:.0%} of the usual speed"
    action = LOOK.format(report_node(peer.known_node, "PERFORMANCE")) if slow else ""
    return Finding(check, state, "fatal", peer.index, peer.node, parts.get(rank, ""), value, limit, SOURCE, action)


def _link_findings(peers: Sequence[PlannedPeer], verdict: PairVerdict, check: str) -> list[Finding]:
    found = []
    for one, other in verdict.ways.links:
        peer, to = peers[one], f"to pod {peers[other].index}"
        limit = f"more than {1 - verdict.seen:.0%} of the usual speed"
        action = "check the cables and switches between the two pods; their other links are good"
        value = "slow in every round"
        found.append(Finding(check, "bad", "degraded", peer.index, peer.node, to, value, limit, SOURCE, action))
    return found


def _files(peers: Sequence[PlannedPeer], bad: Collection[int], good: Collection[int]) -> dict[str, str]:
    """Names of nodes, a line each, where they are known; else of pods."""

    def names(ranks: Collection[int]) -> str:
        return "".join(f"{peers[rank].known_node or peers[rank].name}\n" for rank in sorted(ranks))

    return {"failing_nodes.txt": names(bad), "passing_nodes.txt": names(good)}


def pairs_json(peers: Sequence[PlannedPeer], measured: Sequence[PairSpeed]) -> list[dict[str, object]]:
    """For the record in result.json; null: a time-out."""
    return [
        {
            "round": one.round + 1,
            "pods": [peers[rank].index for rank in one.pair],
            "rail": one.rail,
            "MB/s": one.speed or None,
        }
        for one in measured
    ]


def rail_maps(result: Result) -> list[PairMap]:
    """A map for each rail: of each pair the median of its rounds, of which a time-out counts as 0."""
    places = {pod.index: at for at, pod in enumerate(result.pods)}
    rails: dict[int, dict[tuple[int, int], list[float]]] = {}
    try:
        for row in result.record.get("pairs", []):
            one, other = sorted(row["pods"], key=places.__getitem__)
            rail = rails.setdefault(int(row.get("rail", 0)), {})
            rail.setdefault((one, other), []).append(float(row["MB/s"] or 0))
    except (KeyError, TypeError, ValueError):  # of another version
        return []
    name = "speed on rail {} between pods" if len(rails) > 1 else "speed between pods"
    return [
        PairMap(name.format(rail), "MB/s", [(*pair, median(speeds)) for pair, speeds in pairs.items()], of="pod")
        for rail, pairs in sorted(rails.items())
    ]


def node_shares(result: Result) -> NodeShares | None:
    """The least of a node's pods. One good pair clears a node whose median is low."""
    found: dict[str, float] = {}
    for node, share in zip(result.cells(TABLE, "node"), result.cells(TABLE, "of usual"), strict=False):
        if node and isinstance(share, (int, float)):
            found[str(node)] = min(share, found.get(str(node), share))
    about = "a node's median speed against pairs that are as far apart, on its slowest rail"
    states = list(zip(result.cells(TABLE, "node"), result.cells(TABLE, "state"), strict=False))
    doubted = {node for node, state in states if state != "ok"}
    cleared = frozenset(str(node) for node, _ in states if node not in doubted)
    return NodeShares(found, 100 * (1 - LEAST_LOSS), about, cleared) if found else None

"""Which pods of the plan a run takes, as people name them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from agent.decide.plan import Plan, PlannedPeer
from agent.decide.words import count_text, is_are, plural
from agent.errors import PeerLost, UsageError

Value = TypeVar("Value")
HINT = "pods are named by index (0), range (0-3), DNS name or node name; a4-agent peers lists them"


def subset(
    plan: Plan,
    nodes: int = 0,
    hosts: Sequence[str] = (),
    exclude: Sequence[str] = (),
    *,
    lost: Mapping[int, str],
) -> Plan:
    """The plan with only the pods that were asked for, in its order.

    `hosts` (empty: all) and `exclude` hold what people type: words or comma lists of a pod's index, a range of
    indices, its DNS name or the first part of it, or the name of a node (all its pods). `nodes` (0: all) is how many
    to take of what these leave. `lost`: index → why. Raises UsageError, and PeerLost when a pod of the choice is
    lost: none is left out silently.
    """
    wanted = _indices(plan, hosts, "--hosts") if hosts else {peer.index for peer in plan.peers}
    left_out = _indices(plan, exclude, "--exclude")
    peers = [peer for peer in plan.peers if peer.index in wanted - left_out]
    if not peers:
        raise UsageError(f"no pod is left: {_existing(plan)}", HINT)
    if nodes > len(peers):
        of_choice = " by --hosts and --exclude" if hosts or exclude else ""
        known = pods_text(peer.index for peer in peers)
        what = f"--nodes {nodes}: only {count_text(len(peers), 'pod')} to choose from{of_choice}: {known}"
        raise UsageError(what, HINT)
    peers = peers[: nodes or len(peers)]
    _check_lost(peers, lost, left_out)
    return plan._replace(peers=tuple(peers))


def grouped(values: Mapping[int, Value]) -> dict[Value, list[int]]:
    """Value → the numbers that have it: pods or ranks. Both are in the order of the numbers."""
    found: dict[Value, list[int]] = {}
    for number in sorted(values):
        found.setdefault(values[number], []).append(number)
    return found


def ranges(indices: Iterable[int]) -> str:
    """Numbers as people write them: [0, 1, 2, 5] → "0-2,5"."""
    parts: list[tuple[int, int]] = []
    for index in sorted(set(indices)):
        if parts and parts[-1][1] == index - 1:
            parts[-1] = parts[-1][0], index
        else:
            parts.append((index, index))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def index_range(word: str) -> range | None:
    """The numbers that a word such as 3 or 0-3 names; None for any other word."""
    found = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", word, re.ASCII)
    return range(int(found[1]), int(found[2] or found[1]) + 1) if found else None


def pods_text(indices: Iterable[int]) -> str:
    """pod 3, pods 0-2,7."""
    numbers = set(indices)
    return f"{plural('pod', numbers)} {ranges(numbers)}"


def _indices(plan: Plan, typed: Sequence[str], option: str) -> set[int]:
    """Indices of all pods that these words name."""
    words = [word.strip() for text in typed for word in text.split(",")]
    return {index for word in words for index in _named(plan, word, option)}


def _named(plan: Plan, word: str, option: str) -> set[int]:
    known = {peer.index for peer in plan.peers}
    if (numbers := index_range(word)) is not None:
        if numbers and {numbers[0], numbers[-1]} <= known:
            return known.intersection(numbers)
    elif word:
        name = word.rstrip(".")
        for fits in (lambda peer: name in peer.names, lambda peer: name == peer.node):
            if indices := {peer.index for peer in plan.peers if fits(peer)}:
                return indices
    raise UsageError(f"{option} {word!r} matches no pod: {_existing(plan)}", HINT)


def _check_lost(chosen: Sequence[PlannedPeer], lost: Mapping[int, str], left_out: set[int]) -> None:
    gone = sorted(peer for peer in chosen if peer.index in lost)
    if not gone:
        return
    missing = [peer.index for peer in gone]
    reasons = "; ".join(f"{peer.where}: {lost[peer.index]}" for peer in gone)
    hint = f"continue without: --exclude {ranges([*missing, *left_out])}"
    raise PeerLost(f"{pods_text(missing)} {is_are(missing)} needed but lost ({reasons})", hint)


def _existing(plan: Plan) -> str:
    return f"the plan has {pods_text(peer.index for peer in plan.peers)}"

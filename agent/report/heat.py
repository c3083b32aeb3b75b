"""What was measured between two, as maps: `connectivity` between ranks, `find-slow` between pods, rail by rail."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from agent.decide.result import Result, Table
from agent.decide.words import at_most, count_text
from agent.report.grid import below
from agent.report.number_words import number_text, speed_text

MOST_RANKS = 64
"""Ranks of a run up to which a map is of ranks; of more, it is of pods."""
LEAST, MOST = 3, 256
"""Rows of a map: of two ranks it shows nothing, and of very many nobody sees the cells."""
MOST_NUMBERED = 8
"""Rows up to which the numbers stand in the cells."""
MOST_LABELS = 16
FAINT, FULL, BEHIND_TEXT = 0.06, 1.0, 0.45
"""How opaque the cell of the least value is, and that of the greatest, without and with a number in it."""
Pairs = Mapping[tuple[int, int], float]
"""(first, second) → value."""


class HeatCell(NamedTuple):
    """One measured pair."""

    row: int
    column: int
    opacity: float
    text: str
    """Its number, where there is room for it."""
    words: str
    odd: bool
    """It is half as good as the median, or worse."""


class HeatMap(NamedTuple):
    """One map. Only pairs that were measured have a cell."""

    name: str
    about: tuple[str, ...]
    labels: tuple[str, ...]
    """Labels of the rows and of the columns; empty where there is no room."""
    axis: str
    """rank or pod"""
    cells: tuple[HeatCell, ...]
    scale: tuple[float, ...]
    """Opacities from 0 to the greatest value."""
    greatest: str
    """That value with its unit."""


def heat_maps(result: Result) -> tuple[HeatMap, ...]:
    """Empty when no pairs were measured, or are too few or too many to see."""
    if result.workload == "find-slow":
        return _of_rails(result)
    table = next((one for one in result.tables if one.name == "pairs"), None)
    if table is None:
        return ()
    of_pods = len(result.pods) * result.slots > MOST_RANKS
    axis = "pod" if of_pods else "rank"
    places = [pod.index for pod in result.pods for _ in range(result.slots)] if of_pods else []
    bandwidth, latency = (_pairs(table, name, places) for name in ("bandwidth", "latency"))
    ends = {end for pair in bandwidth for end in pair}
    if not LEAST <= len(ends) <= MOST or bandwidth.keys() != latency.keys():
        return ()
    order = sorted(ends, key=places.index) if of_pods else sorted(ends)
    return (
        _map("bandwidth", "GB/s", axis, order, {pair: min(values) for pair, values in bandwidth.items()}),
        _map("latency", "µs", axis, order, {pair: max(values) for pair, values in latency.items()}),
    )


def _of_rails(result: Result) -> tuple[HeatMap, ...]:
    """A map for each rail: of each pair the median of its rounds, of which a time-out counts as 0."""
    places = {pod.index: at for at, pod in enumerate(result.pods)}
    speeds: dict[int, dict[tuple[int, int], list[float]]] = {}
    try:
        for row in result.record.get("pairs", []):
            one, other = sorted(row["pods"], key=places.__getitem__)
            rail = speeds.setdefault(int(row.get("rail", 0)), {})
            rail.setdefault((one, other), []).append(float(row["MB/s"] or 0))
    except (KeyError, TypeError, ValueError):  # of another version
        return ()
    order = sorted({end for rail in speeds.values() for pair in rail for end in pair}, key=places.__getitem__)
    if not LEAST <= len(order) <= MOST:
        return ()
    return tuple(
        _map(
            f"speed on rail {rail}" if len(speeds) > 1 else "speed",
            "MB/s",
            "pod",
            order,
            {pair: median(found) for pair, found in pairs.items()},
        )
        for rail, pairs in sorted(speeds.items())
    )


def _pairs(table: Table, name: str, places: Sequence[int]) -> dict[tuple[int, int], list[float]]:
    """Everything measured between two ranks, or between the pods in `places`; empty for a table of another kind."""
    found: dict[tuple[int, int], list[float]] = {}
    for ends, value in zip(below(table, "ranks"), below(table, name), strict=False):
        ranks = re.fullmatch(r"(\d{1,6}) - (\d{1,6})", str(ends))
        if ranks is None or isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            return {}
        first, second = int(ranks[1]), int(ranks[2])
        if places:
            if max(first, second) >= len(places):
                return {}
            first, second = places[first], places[second]
        found.setdefault((first, second), []).append(value)
    return found


def _map(name: str, unit: str, axis: str, order: Sequence[int], pairs: Pairs) -> HeatMap:
    middle, greatest = median(pairs.values()), max(pairs.values())
    lower_is_better = name == "latency"
    numbered = len(order) <= MOST_NUMBERED
    strongest = BEHIND_TEXT if numbered else FULL
    at = {end: place for place, end in enumerate(order)}
    cells, odd = [], []
    for (first, second), value in pairs.items():
        text = number_text(value) if lower_is_better else speed_text(value)
        words = f"{axis}s {first} and {second}: {text} {unit}"
        is_odd = value > 2 * middle if lower_is_better else value < middle / 2
        odd += [words] if is_odd else []
        opacity = _opacity(value / greatest if greatest > 0 else 0.0, strongest)
        cells.append(HeatCell(at[first], at[second], opacity, text if numbered else "", words, is_odd))
    every = len(order) * (len(order) - 1) // 2
    about = [f"{len(pairs)} of {count_text(every, 'pair')} were measured; the other cells are empty"]
    if odd:
        what = "twice the median" if lower_is_better else "half the median"
        about.append(f"✗ beyond {what}: {'; '.join(at_most(odd, 4, 'and {} more'))}")
    step = -(-len(order) // MOST_LABELS)
    labels = tuple(str(end) if place % step == 0 else "" for place, end in enumerate(order))
    scale = tuple(_opacity(share / 8, strongest) for share in range(9))
    shown = number_text(greatest) if lower_is_better else speed_text(greatest)
    return HeatMap(name, tuple(about), labels, axis, tuple(cells), scale, f"{shown} {unit}")


def _opacity(share: float, strongest: float) -> float:
    return round(FAINT + (strongest - FAINT) * share, 3)

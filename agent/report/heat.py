"""What was measured between two, as maps."""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

from agent.decide.result import Result
from agent.decide.words import at_most, count_text
from agent.report.number_words import number_text, speed_text
from agent.workloads import shown
from agent.workloads.showing import PairMap

MOST_RANKS = 64
"""Ranks of a run up to which a map is of ranks; of more, it is of pods."""
LEAST, MOST = 3, 256
"""Rows of a map: of two ranks it shows nothing, and of very many nobody sees the cells."""
MOST_NUMBERED = 8
"""Rows up to which the numbers stand in the cells."""
MOST_LABELS = 16
FAINT, FULL, BEHIND_TEXT = 0.06, 1.0, 0.45
"""How opaque the cell of the least value is, and that of the greatest, without and with a number in it."""


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
    return tuple(found for one in shown(result).maps if (found := _map(result, one)))


def _map(result: Result, one: PairMap) -> HeatMap | None:
    """Where there are many ranks, one cell for two pods, with their worst pair."""
    pods = [pod.index for pod in result.pods]
    ends = pods if one.of == "pod" else range(len(pods) * result.slots)
    folded = one.of == "rank" and len(ends) > MOST_RANKS
    axis, names = ("pod", pods) if folded else (one.of, ends)
    places = {end: at // result.slots if folded else at for at, end in enumerate(ends)}
    found: dict[tuple[int, int], list[float]] = {}
    for first, second, value in one.pairs:
        if not places.keys() >= {first, second}:
            return None
        found.setdefault((places[first], places[second]), []).append(value)
    pairs = {pair: max(values) if one.lower else min(values) for pair, values in found.items()}
    order = sorted({end for pair in pairs for end in pair})
    if not LEAST <= len(order) <= MOST:
        return None
    middle, greatest = median(pairs.values()), max(pairs.values())
    numbered = len(order) <= MOST_NUMBERED
    strongest = BEHIND_TEXT if numbered else FULL
    at = {end: place for place, end in enumerate(order)}
    cells, odd = [], []
    for (first, second), value in pairs.items():
        text = number_text(value) if one.lower else speed_text(value)
        words = f"{axis}s {names[first]} and {names[second]}: {text} {one.unit}"
        is_odd = value > 2 * middle if one.lower else value < middle / 2
        odd += [words] if is_odd else []
        opacity = _opacity(value / greatest if greatest > 0 else 0.0, strongest)
        cells.append(HeatCell(at[first], at[second], opacity, text if numbered else "", words, is_odd))
    every = len(order) * (len(order) - 1) // 2
    about = [f"{len(pairs)} of {count_text(every, 'pair')} were measured; the other cells are empty"]
    if odd:
        what = "twice the median" if one.lower else "half the median"
        about.append(f"✗ beyond {what}: {'; '.join(at_most(odd, 4, 'and {} more'))}")
    step = -(-len(order) // MOST_LABELS)
    labels = tuple(str(names[end]) if place % step == 0 else "" for place, end in enumerate(order))
    scale = tuple(_opacity(share / 8, strongest) for share in range(9))
    most = number_text(greatest) if one.lower else speed_text(greatest)
    return HeatMap(one.name, tuple(about), labels, axis, tuple(cells), scale, f"{most} {one.unit}")


def _opacity(share: float, strongest: float) -> float:
    return round(FAINT + (strongest - FAINT) * share, 3)

"""The series of all pods of a run as result.json has them, and what is to be said of their files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from statistics import median

from agent.cutting import visible
from agent.decide.result import CurveOf, Series, SeriesCurve
from agent.decide.series import MOST_FILE, MOST_LINES, MOST_NAMES, MOST_POINTS, PodSeries, Point, SeriesLine, thinned
from agent.decide.subset import pods_text
from agent.decide.words import count_text

MOST_CURVES = 8
"""Ranks of one name that have a curve each; of more there are the median, the least and the greatest."""
Written = tuple[int, SeriesLine]
"""The pod, and what was written there."""


def merged(pods: Mapping[int, PodSeries]) -> tuple[Series, ...]:
    """A series for each name, in the order in which the pods wrote them."""
    written: dict[str, list[Written]] = {}
    for pod, series in sorted(pods.items()):
        for line in series.lines:
            written.setdefault(line.name, []).append((pod, line))
    return tuple(_series(name, lines) for name, lines in list(written.items())[:MOST_NAMES])


def _series(name: str, written: list[Written]) -> Series:
    lines = [line for _, line in written]
    steps = [step for line in lines for step, _ in line.points]
    values = [finite for line in lines if (finite := [value for _, value in line.points if value is not None])]
    nans_at = [line.nan_at for line in lines if line.nan_at is not None]
    return Series(
        name=name,
        unit=next((line.unit for line in lines if line.unit), ""),
        ranks=len(lines),
        pods=len({pod for pod, _ in written}),
        records=sum(line.records for line in lines),
        first_step=min(steps, default=0),
        last_step=max(steps, default=0),
        first=median(each[0] for each in values) if values else None,
        last=median(each[-1] for each in values) if values else None,
        least=min(chain.from_iterable(values), default=None),
        greatest=max(chain.from_iterable(values), default=None),
        nans=sum(line.nans for line in lines),
        nan_at=min(nans_at, default=None),
        curves=_own_curves(written) if len(written) <= MOST_CURVES else _common_curves(lines),
    )


def _own_curves(written: list[Written]) -> tuple[SeriesCurve, ...]:
    most = MOST_POINTS // len(written)
    by_rank = sorted(written, key=lambda one: (one[1].rank is None, one[1].rank or 0, one[0]))
    return tuple(_curve("rank", thinned(line.points, most), pod, line.rank) for pod, line in by_rank)


def _common_curves(lines: list[SeriesLine]) -> tuple[SeriesCurve, ...]:
    """Median, least and greatest of all ranks."""
    groups = _by_step(lines)
    return (
        _curve("median", [(step, median(values)) for step, values in groups]),
        _curve("least", [(step, min(values)) for step, values in groups]),
        _curve("greatest", [(step, max(values)) for step, values in groups]),
    )


def _by_step(lines: list[SeriesLine]) -> list[tuple[int, list[float]]]:
    """Steps with the values of all ranks. A step that few ranks have kept belongs to the one before, and so do
    neighbours where there are too many."""
    at_step: dict[int, list[float]] = {}
    for step, value in chain.from_iterable(line.points for line in lines):
        if value is not None:
            at_step.setdefault(step, []).append(value)
    most = max(map(len, at_step.values()), default=0)
    common = [step for step in sorted(at_step) if 2 * len(at_step[step]) >= most]
    # Three curves share the points.
    begins = set(common[:: max(1, -(-len(common) // (MOST_POINTS // 3)))])
    groups: list[tuple[int, list[float]]] = []
    for step in sorted(at_step):
        if step in begins or not groups:
            groups.append((step, []))
        groups[-1][1].extend(at_step[step])
    return groups


def _curve(of: CurveOf, points: list[Point], pod: int | None = None, rank: int | None = None) -> SeriesCurve:
    return SeriesCurve(of, tuple(step for step, _ in points), tuple(value for _, value in points), pod, rank)


def series_notes(pods: Mapping[int, PodSeries]) -> list[str]:
    """What was not read or is not kept, a sentence each."""
    found = []
    unread = {pod: series for pod, series in sorted(pods.items()) if series.unread}
    for pod, series in list(unread.items())[:1]:
        lines = count_text(sum(one.unread for one in unread.values()), "line")
        wrong = f"{lines} of {_files(unread)} cannot be read as a record, the first on pod {pod}"
        found.append(f"{wrong}: {visible(series.quote)}")
    if left := [pod for pod, series in pods.items() if series.left_out]:
        limits = f"{MOST_NAMES} names, or {MOST_LINES} pairs of name and rank"
        found.append(f"{_files(left)} has more than {limits}: the others are left out")
    names = {line.name for series in pods.values() for line in series.lines}
    if len(names) > MOST_NAMES:
        found.append(f"{len(names)} names are in A4_SERIES_FILE of all pods: the first {MOST_NAMES} are kept")
    if cut := [pod for pod, series in pods.items() if series.cut]:
        found.append(f"{_files(cut)} has more than {MOST_FILE >> 20} MiB: the rest was not read")
    if empty := [pod for pod, series in pods.items() if series.empty]:
        found.append(f"{_files(empty)} is empty, or no regular file")
    return found


def _files(pods: Iterable[int]) -> str:
    return f"A4_SERIES_FILE on {pods_text(pods)}"

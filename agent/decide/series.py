"""What a program writes of itself into A4_SERIES_FILE of its pod: how the lines are read, and what a pod tells of them.

Each line is {"name": "loss", "step": 12, "value": 2.31}, with "unit" and "rank" if the program likes. However long the
file is, what is kept of it is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agent.cutting import cut_at_word
from agent.wire import json_object

MOST_FILE = 64 << 20
"""Bytes of one file that are read."""
MOST_LINE = 4096
"""Bytes of one line: what is appended in one piece stays whole, whoever else appends."""
MOST_NAMES = 64
MOST_LINES = 512
"""Pairs of a name and a rank in one pod."""
LEAST_POINTS, MOST_POINTS = 8, 1000
"""Points of one name."""
MOST_OF_POD, MOST_OF_RUN = 50_000, 500_000
"""Points that one pod tells, and all pods of a run together."""
MOST_NAME, MOST_UNIT, MOST_QUOTE = 100, 40, 200
MOST_STEP = 1 << 53
"""What every reader of JSON keeps exactly."""
MOST_VALUE = 1e300
"""Beyond it the mean of two is not finite."""

Point = tuple[int, float | None]
"""A step and its value; None: it is not a number, or not finite."""


class SeriesLine(NamedTuple):
    """One name as one rank wrote it, or all ranks of a pod that did not say which they are."""

    name: str
    rank: int | None
    unit: str = ""
    records: int = 0
    nans: int = 0
    """How many of them were not a number, or not finite."""
    nan_at: int | None = None
    """The step of the first of those."""
    points: tuple[Point, ...] = ()
    """By step, a choice of them: with the first, the last, the least and the greatest."""


class PodSeries(NamedTuple):
    """What one pod's file says."""

    lines: tuple[SeriesLine, ...] = ()
    unread: int = 0
    """Lines that are no records."""
    quote: str = ""
    """The first of them."""
    left_out: int = 0
    """Records beyond MOST_NAMES or MOST_LINES."""
    cut: bool = False
    """The file is longer than MOST_FILE."""
    empty: bool = False
    """It is there, but nothing could be read: it is empty, or no regular file."""


def newest_step(pods: Mapping[int, PodSeries]) -> int | None:
    """None: nothing was written."""
    last = [line.points[-1][0] for series in pods.values() for line in series.lines if line.points]
    return max(last, default=None)


def continued(earlier: Mapping[int, PodSeries], later: Mapping[int, PodSeries]) -> dict[int, PodSeries]:
    """The series of all pods of a run that has started again: what it wrote before counts up to the step with which it
    began anew, and a rank may be on another pod by now."""
    before = {_writer(pod, line): line for pod, series in earlier.items() for line in series.lines}
    found = {}
    for pod, series in later.items():
        most = _most_points(_room(len({*earlier, *later})), len(series.lines))
        lines = tuple(_joined(before.pop(_writer(pod, line), line), line, most) for line in series.lines)
        found[pod] = series._replace(lines=lines)
    for pod, series in earlier.items():
        gone = tuple(line for line in series.lines if _writer(pod, line) in before)
        there = found.get(pod, PodSeries())
        found[pod] = PodSeries(
            (*there.lines, *gone)[:MOST_LINES],
            series.unread + there.unread,
            series.quote or there.quote,
            series.left_out + there.left_out,
            series.cut or there.cut,
            there.empty,
        )
    return found


def _writer(pod: int, line: SeriesLine) -> tuple[str, int | None, int | None]:
    return line.name, line.rank, pod if line.rank is None else None


def _room(pods: int) -> int:
    """Points that each of so many pods may tell."""
    return min(MOST_OF_POD, MOST_OF_RUN // pods)


def _most_points(room: int, lines: int) -> int:
    """Points of each line of a pod."""
    return max(LEAST_POINTS, min(MOST_POINTS, room // max(1, lines)))


def _joined(before: SeriesLine, line: SeriesLine, most: int) -> SeriesLine:
    if before is line:
        return line
    begin = line.points[0][0] if line.points else MOST_STEP
    points = [*(point for point in before.points if point[0] < begin), *line.points]
    nan_at = line.nan_at if before.nan_at is None or before.nan_at >= begin else before.nan_at
    return line._replace(
        records=before.records + line.records,
        nans=before.nans + line.nans,
        nan_at=nan_at,
        points=tuple(thinned(points, most)),
    )


class SeriesRecord(NamedTuple):
    """One line."""

    name: str
    step: int
    value: float | None
    unit: str = ""
    rank: int | None = None


def read_record(line: bytes) -> SeriesRecord | None:
    """None when the line does not hold a record. Names that are not known are passed over."""
    data = json_object(line)
    step: Any
    name, step, value = data.get("name"), data.get("step"), data.get("value", "")
    unit, rank = data.get("unit", ""), data.get("rank")
    if not isinstance(name, str) or not 0 < len(name) <= MOST_NAME:
        return None
    if not isinstance(unit, str) or len(unit) > MOST_UNIT:
        return None
    if not _is_whole(step) or not (rank is None or _is_whole(rank)):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float, type(None))):
        return None
    return SeriesRecord(name, step, _finite(value), unit, rank)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_STEP


def _finite(value: float | None) -> float | None:
    """JSON's writers say null where others say NaN, which is not less than anything."""
    return None if value is None or not abs(value) <= MOST_VALUE else float(value)


class SeriesReader:
    """Takes a pod's file piece by piece. `pods` write such files in this run."""

    def __init__(self, pods: int) -> None:
        self.offset = 0
        """Bytes that were taken."""
        self._rest = b""
        """The beginning of a line whose end has not come."""
        self._lines: dict[tuple[str, int | None], _Kept] = {}
        self._names: set[str] = set()
        self._unread = self._left_out = 0
        self._quote = ""
        self._room = _room(pods)

    def take(self, data: bytes) -> None:
        """The next piece of the file."""
        self.offset += len(data)
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[: MOST_LINE + 1]  # too long remains too long
        for line in lines:
            self._take_line(line)

    def finish(self) -> None:
        """Nothing more is coming."""
        self._take_line(self._rest)
        self._rest = b""

    def _take_line(self, line: bytes) -> None:
        if not line.strip():
            return
        record = read_record(line) if len(line) <= MOST_LINE else None
        if record is None:
            self._unread += 1
            self._quote = self._quote or cut_at_word(line.decode(errors="backslashreplace"), MOST_QUOTE)
            return
        key = record.name, record.rank
        if key not in self._lines:
            known = record.name in self._names or len(self._names) < MOST_NAMES
            if not known or len(self._lines) >= MOST_LINES:
                self._left_out += 1
                return
            self._names.add(record.name)
            self._lines[key] = _Kept()
        self._lines[key].add(record)

    def told(self) -> PodSeries:
        """What is known so far."""
        most = _most_points(self._room, len(self._lines))
        lines = tuple(kept.told(*key, most) for key, kept in self._lines.items())
        return PodSeries(lines, self._unread, self._quote, self._left_out, self.offset >= MOST_FILE)


class _Kept:
    """What is kept of one name and rank: every record at first, then every second, every fourth …

    So ranks that write the same steps keep the same ones, and their values can be compared.
    """

    def __init__(self) -> None:
        self.unit = ""
        self.records = self.nans = 0
        self.nan_at: int | None = None
        self._points: list[Point] = []
        self._stride = 1
        self._ends: list[Point] = []
        """First, last, least and greatest."""

    def add(self, record: SeriesRecord) -> None:
        point = record.step, record.value
        if self.records % self._stride == 0:
            self._points.append(point)
            if len(self._points) > 2 * MOST_POINTS:
                self._points = self._points[::2]
                self._stride *= 2
        self.records += 1
        self.unit = record.unit or self.unit
        if record.value is None:
            self.nans += 1
            self.nan_at = record.step if self.nan_at is None else self.nan_at
        else:
            first, _, least, greatest = self._ends or [point] * 4
            self._ends = [first, point, min(least, point, key=_value), max(greatest, point, key=_value)]

    def told(self, name: str, rank: int | None, most: int) -> SeriesLine:
        chosen = self._points[:: stride(len(self._points), most - len(self._ends))]
        by_step = {**dict(self._ends), **dict(chosen)}  # of a step that came twice, the later value
        return SeriesLine(name, rank, self.unit, self.records, self.nans, self.nan_at, tuple(sorted(by_step.items())))


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """At most so many of them, eight or more: every second, every fourth …, the first, the last, the least and the
    greatest."""
    if len(points) <= most:
        return list(points)
    finite = [at for at, point in enumerate(points) if point[1] is not None]
    ends = {len(points) - 1, *(choose(finite, key=lambda at: _value(points[at])) for choose in (min, max) if finite)}
    return [points[at] for at in sorted({*range(0, len(points), stride(len(points), most - 3)), *ends})]


def stride(count: int, most: int) -> int:
    """Every how many of `count` are `most` or fewer: 1, 2, 4 …"""
    found = 1
    while -(-count // found) > most:
        found *= 2
    return found


def _value(point: Point) -> float:
    return point[1] or 0.0

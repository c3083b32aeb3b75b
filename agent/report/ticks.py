"""Where an axis is labelled, and with what: sizes in powers of two, moments in UTC, durations in powers of ten."""

from __future__ import annotations

import math
from datetime import datetime, timezone

from agent.report.number_words import size_text

MOST = 5
"""Labels of one axis."""
MINUTE, HOUR, DAY = 60, 3600, 86400
LATEST = 250_000_000_000.0
"""Seconds since 1970 up to which a moment has a date, with room for an axis."""
STEPS = (
    *(minutes * MINUTE for minutes in (1, 2, 5, 10, 20)),
    *(hours * HOUR for hours in (0.5, 1, 2, 4, 6, 12)),
    *(days * DAY for days in (1, 2, 4, 7, 14, 28, 60, 120, 365, 1000, 4000, 20_000, 100_000, 800_000)),
)
"""Seconds between two moments that are labelled."""
UNITS = ((1e6, "s"), (1e3, "ms"), (1.0, "µs"), (1e-3, "ns"))
Ticks = list[tuple[float, str]]


def size_ticks(low: float, high: float) -> Ticks:
    """Powers of two between two of them (given as exponents), evenly apart."""
    first, last = math.ceil(low - 1e-9), math.floor(high + 1e-9)
    if last < first:
        return [(2**low, size_text(round(2**low)))]
    steps = (1, 2, 4, 5, 10, 20, 60)  # sizes are usually a factor of 2, 4 or 1024 apart
    step = next(step for step in steps if (last - first) / step < MOST - 1 or step == 60)  # "256 MiB" is wide
    return [(2.0**power, size_text(2**power)) for power in range(last, first - 1, -step)][::-1]


def moment_ticks(low: float, high: float) -> Ticks:
    """Whole minutes, hours or days between two moments in seconds since 1970; the first moment where there is none."""
    step = next((step for step in STEPS if (high - low) / step < MOST), STEPS[-1])
    found = [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)] or [low]
    return [(moment, _moment(moment, step)) for moment in found]


def _moment(moment: float, step: float) -> str:
    """Midnight has the name of its day."""
    at = datetime.fromtimestamp(moment, timezone.utc)
    if moment % DAY:
        return f"{at:%H:%M}"
    return f"{at.day} {at:%b}" if step < 365 * DAY else f"{at:%b %Y}"


def span_text(low: float, high: float) -> str:
    """The days between which moments are."""
    days = [f"{at.day} {at:%b %Y}" for at in (datetime.fromtimestamp(one, timezone.utc) for one in (low, high))]
    return f"{' to '.join(dict.fromkeys(days))}, UTC"


def duration_ticks(first: int, last: int) -> Ticks:
    """Powers of ten from one to another (given as exponents of µs)."""
    step = max(1, math.ceil((last - first + 1) / (MOST + 1)))
    return [(10.0**power, _duration(10.0**power)) for power in range(first, last + 1, step)]


def _duration(microseconds: float) -> str:
    """A power of ten in words: 10 µs, 1 ms, 1000 s."""
    size, unit = next(((size, unit) for size, unit in UNITS if microseconds >= size * 0.99), UNITS[-1])
    return f"{microseconds / size:g} {unit}"

"""Numbers, sizes and times as people read them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timezone

from agent.decide.words import count_text as count_text
from agent.decide.words import size_text as size_text

NONE = "–"
TIMES = ("s", "ms", "µs", "ns")
"""Units of what is better the less it is."""


def number_text(value: float | int | None, places: int | None = None) -> str:
    """Four digits that count, or `places` decimals; without an exponent where people would not write one."""
    if value is None:
        return NONE
    if isinstance(value, int):
        return str(value)
    if places is not None:
        return f"{value:.{places}f}"
    if not math.isfinite(value) or (value and not 1e-4 <= abs(value) < 1e15):
        return f"{value:.3g}"
    fitting = max(0, 3 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:.{fitting}f}" if fitting < 4 else f"{value:.4g}"


def decimals(values: Iterable[float]) -> int | None:
    """How many a column of these has, so that points stand below each other; None: each for itself."""
    sizes = [abs(value) for value in values if value]
    if not sizes or not all(math.isfinite(size) for size in sizes) or max(sizes) > 1e4 * min(sizes):
        return None
    fitting = 3 - math.floor(math.log10(max(sizes)))
    return max(0, fitting) if fitting < 6 else None


def speed_text(value: float | None) -> str:
    """GB/s, with the two decimals of nccl-tests where they say something."""
    if value is None:
        return NONE
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"


def percent_text(ratio: float | None) -> str:
    """A ratio in words: 0.96 is 96 %. Never more than it is: 89.96 % is not the 90 % that a gate asks for."""
    return NONE if ratio is None or not math.isfinite(ratio) else f"{math.floor(100 * ratio + 1e-9)} %"


def ratio_text(ratio: float | None, unit: str = "") -> str:
    """1.04×; a change of 5 % and more is marked without colour, too. Of times, less is better: words say so."""
    if ratio is None or not math.isfinite(ratio):
        return NONE
    less, more = (", faster", ", slower") if unit in TIMES else (" ▼", " ▲")
    return f"{ratio:.2f}×{less if ratio <= 0.95 else more if ratio >= 1.05 else ''}"


def duration_text(seconds: float) -> str:
    """Seconds as people say them: 3.21 s, 2 min 05 s, 1 h 07 min."""
    if not math.isfinite(seconds):
        return NONE
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if minutes else f"{hours} h"


def moment_text(time: float) -> str:
    """Seconds since 1970 as date and time in UTC."""
    try:
        return datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{time:g} s after 1970"

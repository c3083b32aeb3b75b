"""Numbers in what programs print and write."""

from __future__ import annotations

import math


def finite(value: object) -> float | None:
    """The number, or that of a text; None for what is none, and for infinity and NaN."""
    try:
        number = float(str(value))
    except ValueError:
        return None
    return number if math.isfinite(number) else None

"""Kubernetes' quantities as numbers."""

from __future__ import annotations

from fractions import Fraction

_UNITS = {
    "": Fraction(1),
    "m": Fraction(1, 1000),
    **{unit: Fraction(1000**power) for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": Fraction(1024**power) for power, unit in enumerate("KMGTPE", start=1)},
}


def number(quantity: str) -> Fraction:
    """The number that a quantity such as `500m` or `2Gi` stands for. Raises ValueError."""
    digits = str(quantity).rstrip("kKMGTPEim")
    unit = str(quantity)[len(digits) :]
    if unit not in _UNITS:
        raise ValueError(f"{quantity!r} is not a quantity")
    return Fraction(digits) * _UNITS[unit]

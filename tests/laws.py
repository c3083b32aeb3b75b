"""How often hypothesis tries a law that is expensive to try."""

from __future__ import annotations

from hypothesis import settings


def examples(number: int) -> settings:
    """So many of them with the default profile; with one that tries more than 100, that percentage of its number."""
    most = settings().max_examples
    return settings(max_examples=number if most <= 100 else most * number // 100)

"""How messages put things into words."""

from __future__ import annotations


def lines(*texts: str) -> str:
    """The texts that are not empty, one under the other."""
    return "\n".join(text for text in texts if text)

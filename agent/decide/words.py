"""How messages put things into words."""

from __future__ import annotations

from collections.abc import Sequence


def lines(*texts: str) -> str:
    """The texts that are not empty, one under the other."""
    return "\n".join(text for text in texts if text)


def listed(words: Sequence[str]) -> str:
    """a, b and c"""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def is_are(words: Sequence[str]) -> str:
    """The verb for one of these, or for several."""
    return "is" if len(words) == 1 else "are"


def plural(noun: str, words: Sequence[str]) -> str:
    """The noun for one of these, or for several."""
    return noun if len(words) == 1 else f"{noun}s"

"""How messages put things into words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def lines(*texts: str) -> str:
    """The texts that are not empty, one under the other."""
    return "\n".join(text for text in texts if text)


def listed(words: Sequence[str]) -> str:
    """a, b and c"""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def is_are(words: Sized) -> str:
    """The verb for one of these, or for several."""
    return "is" if len(words) == 1 else "are"


def count_text(count: int, noun: str, several: str = "") -> str:
    """1 pod, 2 pods; `several`: the plural that is not made by an s."""
    return f"{count} {noun if count == 1 else several or noun + 's'}"


def plural(noun: str, words: Sized) -> str:
    """The noun for one of these, or for several."""
    return noun if len(words) == 1 else f"{noun}s"


def at_most(found: Sequence[str], most: int = 8, rest: str = "and {} more like these") -> list[str]:
    """The first so many, then how many more there are."""
    more = len(found) - most
    return [*found[:most], *([rest.format(more)] if more > 0 else [])]


def did_you_mean(word: str, known: Iterable[str], written: Mapping[str, str] | None = None) -> str:
    """ "; did you mean …?" with the known word that is nearest, as it is `written`; empty when none is near."""
    from difflib import get_close_matches  # here: only mistakes need it

    close = get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f"; did you mean {(written or {}).get(close[0], close[0])}?" if close else ""


def size_text(size: int) -> str:
    """Bytes: 8 B, 1.5 KiB, 256 MiB."""
    value, power = float(min(size, 2**60)), 0
    while float(f"{value:.4g}") >= 1024 and power < len(UNITS) - 1:
        value, power = max(1.0, value / 1024), power + 1  # 1023.99 KiB is 1 MiB, not 1024 KiB
    return f"{value:.4g} {UNITS[power]}"

"""Whether text is coloured, and the colours."""

from __future__ import annotations

from collections.abc import Mapping

GOOD, BAD = "32", "31"
"""Green and red, in the words of a terminal."""


def wanted(when: str, environ: Mapping[str, str], *, is_terminal: bool) -> bool:
    """Whether to paint. `when`: auto, always or never, as the command line says.

    NO_COLOR goes before FORCE_COLOR; empty ones say nothing.
    """
    if when != "auto":
        return when == "always"
    if environ.get("NO_COLOR"):
        return False
    return bool(environ.get("FORCE_COLOR")) or (is_terminal and environ.get("TERM") != "dumb")


def painted(text: str, color: str) -> str:
    """The first line in this colour."""
    first, newline, rest = text.partition("\n")
    return f"\x1b[{color}m{first}\x1b[0m{newline}{rest}"

"""How texts are cut that are masked later."""

from __future__ import annotations


def cut_at_word(text: str, most: int) -> str:
    """At most `most` characters. No word is shown in part: the rest of a secret would not be masked."""
    if len(text) <= most:
        return text
    return f"{text[: most - 2].rpartition(' ')[0]} …".lstrip()

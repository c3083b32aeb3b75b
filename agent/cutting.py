"""How texts of others are cut and shown in our own messages. Secrets in them are masked later."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def cut_at_word(text: str, most: int) -> str:
    """At most `most` characters. No word is shown in part: the rest of a secret would not be masked."""
    if len(text) <= most:
        return text
    return f"{text[: most - 2].rpartition(' ')[0]} …".lstrip()


def visible(text: str) -> str:
    """`text` with control characters but tabs and newlines as \\x1b and the like: a terminal would obey them."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)

"""How texts of others are cut and shown in our own messages. Secrets in them are masked later."""

from __future__ import annotations

import json
import re
from bisect import bisect_right

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def cut_at_word(text: str, most: int) -> str:
    """At most `most` characters. No word is shown in part: the rest of a secret would not be masked."""
    if len(text) <= most:
        return text
    return f"{text[: most - 2].rpartition(' ')[0]} …".lstrip()


_BLOCK = 4096
"""Characters that are measured at a time: JSON of a whole megabyte, made again and again, would hold the loop."""


def json_size(text: str) -> int:
    """Bytes of the text as JSON, quotes apart. A character that is not ASCII takes six of them, or twelve."""
    return len(json.dumps(text)) - 2


def last_of(text: str, most: int) -> str:
    """The longest end of the text that takes at most so many bytes as JSON."""
    keep = 0
    for at in range(len(text), 0, -_BLOCK):
        block = text[max(0, at - _BLOCK) : at]
        size = json_size(block)
        if size > most:
            keep += bisect_right(range(len(block)), most, key=lambda length: json_size(block[-1 - length :]))
            break
        most -= size
        keep += len(block)
    return text[len(text) - keep :]


def first_of(text: str, most: int, mark: str = "") -> str:
    """The text, or the longest beginning that takes at most so many bytes as JSON with the mark behind it."""
    backwards = text[::-1]
    if last_of(backwards, most) == backwards:
        return text
    return last_of(backwards, most - json_size(mark))[::-1] + mark


def visible(text: str) -> str:
    """`text` with control characters but tabs and newlines as \\x1b and the like: a terminal would obey them."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)

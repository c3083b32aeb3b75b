"""How long a message of the control channel may be, and what becomes of one that is longer.

A line that is too long would break the connection, be sent again after the next reconnection, and break that one too.
"""

from __future__ import annotations

from typing import Any

from agent.decide.messages import Message, encode
from agent.errors import AgentError

MOST_BYTES = (4 << 20) - 64
"""A line has 4 MiB at most, with what is added when it is sent."""
SHORTENED = ("answer", "cluster", "done", "evidence", "inventory", "result", "run", "stopping")
"""Messages whose long texts are for people: the beginning of each will do."""
SHORTEST = 16


def line_of(message: Message, most: int = MOST_BYTES) -> bytes:
    """The message as a line of at most `most` bytes, its longest texts cut if need be. Raises AgentError for one that
    must arrive whole, and whose sender should have refused it."""
    line = encode(message)
    limit = most // 2
    while len(line) > most:
        if message["type"] not in SHORTENED or limit < SHORTEST:
            what = f"a message {message['type']!r} of {len(line)} bytes cannot be sent: {most} are the most"
            raise AgentError(what, "please report this: what it is made of should have been refused before")
        line = encode(_cut(message, limit))
        limit //= 2
    return line


def _cut(value: Any, limit: int) -> Any:
    """JSON with no text of more than `limit` characters."""
    if isinstance(value, str):
        return value if len(value) <= limit else value[: limit - 1] + "…"
    if isinstance(value, dict):
        return {name: _cut(one, limit) for name, one in value.items()}
    return [_cut(one, limit) for one in value] if isinstance(value, list) else value

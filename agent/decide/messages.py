"""Messages of the control channel: one JSON object per line (docs/control-channel.md)."""

from __future__ import annotations

import json
from typing import Any

CHANNEL_VERSION = 2
Message = dict[str, Any]

COORDINATOR_SAYS = (
    "hello", "plan", "start", "stop", "evidence", "run", "cluster", "ask", "answer", "result", "end", "beat",
)  # fmt: skip
WORKER_SAYS = (
    "hello", "facts", "planned", "inventory", "done", "evidence", "ask", "answer", "stopping", "bye", "beat",
)  # fmt: skip


class BadMessage(ValueError):
    """A line that is no message of this version of the channel."""


def encode(message: Message) -> bytes:
    """One line, newline included."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """The message in one line. Raises BadMessage."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadMessage(f"not JSON: {_shown(line)}") from error
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise BadMessage(f"no message: {_shown(line)}")
    return message


def _shown(line: bytes) -> str:
    return repr(line[:80])

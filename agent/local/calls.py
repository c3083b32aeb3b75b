"""Finding the supervisors of this machine and asking them."""

from __future__ import annotations

import socket
from typing import Any

from agent import errors
from agent.local.channel import SOCKET_PREFIX, Conversation, Message, socket_address


def running_clusters() -> list[str]:
    """Names of the local clusters that run on this machine."""
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as table:
        paths = [line.split()[-1] for line in table if f" @{SOCKET_PREFIX}" in line]
    return sorted({path[len(SOCKET_PREFIX) + 1 :] for path in paths})


def connect(name: str) -> Conversation:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(socket_address(name))
    except OSError as error:
        connection.close()
        running = ", ".join(running_clusters()) or "none"
        raise errors.UsageError(f"no local cluster {name} runs", f"running: {running}") from error
    return Conversation(connection)


def expect(conversation: Conversation) -> Message:
    """The answer to a request; errors of the other side are raised here."""
    message = conversation.read()
    if message is None:
        raise errors.SystemFault("the supervisor of the local cluster has ended")
    if "error" in message:
        kind: Any = getattr(errors, message["error"], errors.AgentError)
        raise kind(message["what"], message["hint"])
    return message

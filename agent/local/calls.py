"""Asking a supervisor."""

from __future__ import annotations

import contextlib
from typing import Any

from agent import errors
from agent.local import sockets
from agent.local.channel import Conversation, Message
from agent.machine.stream import MOST_BYTES

ANSWER_SECONDS = 60.0
"""How long a supervisor may take for what it can answer at once."""


def connect(name: str) -> Conversation:
    """A conversation with the supervisor of a cluster. Raises UsageError when there is no such cluster."""
    try:
        return Conversation(sockets.connect(name), most_request=MOST_BYTES)
    except OSError as error:
        running = ", ".join(sockets.running_clusters()) or "none"
        raise errors.UsageError(f"no local cluster {name} runs", f"running: {running}") from error


def expect(conversation: Conversation) -> Message:
    """The answer to a request; errors of the other side are raised here."""
    message = conversation.read()
    if message is None:
        raise errors.SystemFault("the supervisor of the local cluster has ended")
    if "error" in message:
        kind: Any = getattr(errors, message["error"], errors.AgentError)
        raise kind(message["what"], message["hint"])
    return message


def ask(name: str, request: Message, patience: float | None = ANSWER_SECONDS) -> Message:
    """The answer of a cluster's supervisor to one request. Raises SystemFault when it takes too long."""
    with contextlib.closing(connect(name)) as conversation:
        conversation.socket.settimeout(patience)
        try:
            conversation.send(request)
            return expect(conversation)
        except OSError as error:
            late = isinstance(error, TimeoutError)
            how = f"has not answered for {patience:g} s" if late else f"cannot be asked: {error.strerror}"
            raise errors.SystemFault(f"the supervisor of the local cluster {name} {how}") from error

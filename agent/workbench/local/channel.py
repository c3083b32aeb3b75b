"""JSON objects, one per line, over a Unix socket, with descriptors beside them."""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from agent import errors
from agent.errors import AgentError, SystemFault, UsageError
from agent.machine.loop import Loop
from agent.machine.stream import NO_LIMIT, LineBuffer, LineStream

Message = dict[str, Any]
_MAX_DESCRIPTORS = 3
_SIZE = 65536


def peer_is_root(connection: socket.socket) -> bool:
    """Only root is served, however others have come by a way to the socket."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", raw)[1] == 0)


def encode(message: Message) -> bytes:
    return json.dumps(message).encode() + b"\n"


def error_message(error: AgentError) -> Message:
    """What `Conversation.expect` raises at the other end."""
    return {"error": type(error).__name__, "what": error.what, "hint": error.hint}


def receive(connection: socket.socket, descriptors: list[int]) -> bytes:
    """Some bytes; the descriptors that came with them, none of which children inherit, are added to the others."""
    size = array.array("i").itemsize
    space = socket.CMSG_SPACE(_MAX_DESCRIPTORS * size)
    data, extra, _, _ = connection.recvmsg(_SIZE, space, socket.MSG_CMSG_CLOEXEC)
    for level, kind, payload in extra:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors += array.array("i", payload[: len(payload) - len(payload) % size])
    if len(descriptors) > _MAX_DESCRIPTORS:
        raise OSError("more descriptors than a command has streams")
    return data


class Conversation:
    """The client's end: blocking, one request at a time."""

    def __init__(self, connection: socket.socket, most_request: int = NO_LIMIT) -> None:
        self.socket = connection
        self.descriptors: list[int] = []
        self._most_request = most_request
        self._buffer = LineBuffer(NO_LIMIT)
        self._lines: deque[bytes] = deque()

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Raises UsageError for more than the other end takes, OSError when it has gone."""
        data = encode(message)
        if len(data) > self._most_request:
            what = f"a request of {len(data):,} bytes: the local cluster takes {self._most_request:,}"
            raise UsageError(what, "give a long argument or variable as a file, or on stdin")
        if descriptors:
            sent = socket.send_fds(self.socket, [data], list(descriptors))
            data = data[sent:]
        self.socket.sendall(data)

    def read(self) -> Message | None:
        """The next message, None when the other end has closed; TimeoutError after the socket's timeout."""
        while not self._lines:
            try:
                data = receive(self.socket, self.descriptors)
            except ConnectionError:
                return None
            if not data:
                return None
            self._lines += self._buffer.feed(data)
        message: Message = json.loads(self._lines.popleft())
        return message

    def expect(self) -> Message:
        """The answer to a request; errors of the other side are raised here."""
        message = self.read()
        if message is None:
            raise SystemFault("the supervisor of the local cluster has ended")
        if "error" in message:
            kind: Any = getattr(errors, message["error"], AgentError)
            raise kind(message["what"], message["hint"])
        return message

    def close(self) -> None:
        self.socket.close()
        _close(self.descriptors)


class MessageChannel:
    """The supervisor's end: never blocks, keeps what a slow client has not taken yet.

    A connection carries one request and its answers. A client that does not keep to that, or cannot be understood, is
    told so and loses its connection, and that is all.
    """

    def __init__(
        self, loop: Loop, connection: socket.socket, on_request: Callable[[MessageChannel, Message, list[int]], None]
    ) -> None:
        self.on_close: Callable[[], None] = _nothing
        self.on_drained: Callable[[], None] = _nothing
        self.on_more: Callable[[Message], None] = _refuse
        """Gets each message after the first."""
        self.socket = connection
        self._on_request = on_request
        self._has_asked = False
        self._descriptors: list[int] = []
        read = partial(receive, connection, self._descriptors)
        self.stream = LineStream(loop, connection, connection, read=read)
        self.stream.receive(self._line, lambda reason: self._closed(), lambda: self.on_drained())

    def send(self, message: Message) -> None:
        self.stream.send(encode(message))

    def fail(self, error: AgentError) -> None:
        """Tell the client what went wrong."""
        self.send(error_message(error))

    def _line(self, line: bytes) -> None:
        taken = [*self._descriptors]
        self._descriptors.clear()
        try:
            message = json.loads(line)
            if not isinstance(message, dict):
                raise TypeError("not an object")
            if self._has_asked:
                self.on_more(message)
            else:
                self._has_asked = True
                self._on_request(self, message, taken)
        except AgentError as error:
            self.fail(error)
        except Exception as error:
            self.fail(AgentError(f"the local cluster cannot do this: {type(error).__name__}: {error}"))
            self.stream.close()
            self._closed()
        finally:
            _close(taken)  # whoever needs one longer has forked with it by now

    def _closed(self) -> None:
        _close(self._descriptors)
        told, self.on_close, self.on_drained, self.on_more = self.on_close, _nothing, _nothing, _refuse  # no cycles
        told()


def _nothing() -> None:
    """Nobody wants to know."""


def _refuse(message: Message) -> None:
    raise ValueError("a second request on one connection")


def _close(descriptors: list[int]) -> None:
    while descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptors.pop())

"""JSON objects, one per line, over a Unix socket, with descriptors beside them."""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from agent.machine.loop import Loop
from agent.machine.stream import NO_LIMIT, LineStream

Message = dict[str, Any]
SOCKET_PREFIX = "a4-agent/local/"
_MAX_DESCRIPTORS = 3
_SIZE = 65536


def socket_address(name: str) -> str:
    """Abstract socket of a cluster's supervisor: no file, gone with its process."""
    return f"\0{SOCKET_PREFIX}{name}"


def peer_is_root(connection: socket.socket) -> bool:
    """An abstract socket has no file permissions: everybody can connect, only root is served."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", raw)[1] == 0)


def encode(message: Message) -> bytes:
    return json.dumps(message).encode() + b"\n"


def receive(connection: socket.socket, descriptors: list[int]) -> bytes:
    """Some bytes; the descriptors that came with them, none of which children inherit, are added to the others."""
    size = array.array("i").itemsize
    space = socket.CMSG_SPACE(_MAX_DESCRIPTORS * size)
    data, extra, _, _ = connection.recvmsg(_SIZE, space, socket.MSG_CMSG_CLOEXEC)
    for level, kind, payload in extra:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors += array.array("i", payload[: len(payload) - len(payload) % size])
    return data


class Conversation:
    """The client's end: blocking, one request at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.descriptors: list[int] = []
        self._buffer = b""

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        data = encode(message)
        if descriptors:
            sent = socket.send_fds(self.socket, [data], list(descriptors))
            data = data[sent:]
        self.socket.sendall(data)

    def read(self) -> Message | None:
        """The next message, None when the other end has closed; TimeoutError after the socket's timeout."""
        while b"\n" not in self._buffer:
            try:
                data = receive(self.socket, self.descriptors)
            except ConnectionError:
                return None
            if not data:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: Message = json.loads(line)
        return message

    def close(self) -> None:
        self.socket.close()
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = []


class Channel:
    """The supervisor's end: never blocks, keeps what a slow client has not taken yet."""

    def __init__(
        self, loop: Loop, connection: socket.socket, on_message: Callable[[Channel, Message, list[int]], None]
    ) -> None:
        self.socket = connection
        self.on_close: Callable[[], None] = lambda: None
        self.on_drained: Callable[[], None] = lambda: None
        self._on_message = on_message
        self._descriptors: list[int] = []
        read = partial(receive, connection, self._descriptors)
        self._stream = LineStream(loop, connection, connection, most_line=NO_LIMIT, read=read)
        self._stream.receive(self._line, lambda reason: self.on_close(), lambda: self.on_drained())

    @property
    def is_open(self) -> bool:
        return self._stream.is_open

    @property
    def is_idle(self) -> bool:
        """Whether the client has taken everything."""
        return self._stream.is_idle

    def send(self, message: Message) -> None:
        self._stream.send(encode(message))

    def fail(self, error: Exception) -> None:
        """Tell the client what went wrong, in the terms of agent.errors."""
        kind, hint = type(error).__name__, getattr(error, "hint", "")
        self.send({"error": kind, "what": getattr(error, "what", str(error)), "hint": hint})

    def _line(self, line: bytes) -> None:
        taken = [*self._descriptors]
        self._descriptors.clear()
        self._on_message(self, json.loads(line), taken)
        for descriptor in taken:
            # Whoever needs one longer has forked with it by now.
            with contextlib.suppress(OSError):
                os.close(descriptor)

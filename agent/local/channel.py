"""JSON objects, one per line, over a Unix socket, with descriptors beside them."""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any

from agent.local.loop import Loop

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


def receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    """Some bytes and the descriptors that came with them, none of which children inherit."""
    space = socket.CMSG_SPACE(_MAX_DESCRIPTORS * array.array("i").itemsize)
    data, extra, _, _ = connection.recvmsg(_SIZE, space, socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, payload in extra:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(payload[: len(payload) - len(payload) % descriptors.itemsize])
    return data, list(descriptors)


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
                data, descriptors = receive(self.socket)
            except ConnectionError:
                return None
            self.descriptors += descriptors
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
        self.is_open = True
        self._loop = loop
        self._on_message = on_message
        self._input = b""
        self._output = b""
        self._descriptors: list[int] = []
        connection.setblocking(False)
        loop.add_reader(connection, self._readable)

    @property
    def is_idle(self) -> bool:
        """Whether the client has taken everything."""
        return not self._output

    def send(self, message: Message) -> None:
        if self.is_open:
            self._output += encode(message)
            self._flush()

    def fail(self, error: Exception) -> None:
        """Tell the client what went wrong, in the terms of agent.errors."""
        kind, hint = type(error).__name__, getattr(error, "hint", "")
        self.send({"error": kind, "what": getattr(error, "what", str(error)), "hint": hint})

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._loop.remove(self.socket)
            self.socket.close()
            self.on_close()

    def _flush(self) -> None:
        try:
            sent = self.socket.send(self._output)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close()
            return
        self._output = self._output[sent:]
        self._loop.set_writer(self.socket, self._writable if self._output else None)

    def _writable(self) -> None:
        self._flush()
        if self.is_open and self.is_idle:
            self.on_drained()

    def _readable(self) -> None:
        try:
            data, descriptors = receive(self.socket)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        self._descriptors += descriptors
        self._input += data
        while b"\n" in self._input and self.is_open:
            line, _, self._input = self._input.partition(b"\n")
            taken, self._descriptors = self._descriptors, []
            self._on_message(self, json.loads(line), taken)
            for descriptor in taken:
                # Whoever needs one longer has forked with it by now.
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        if not data:
            self.close()

"""Where commands in this pod reach its agent: connections on a Unix stream socket, one message per line."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from agent.machine.lines import LineBuffer, LineTooLong
from agent.machine.loop import READ, WRITE, Loop

MOST_UNSENT = 64 * 1024 * 1024
"""Bytes that may wait for a client that does not read."""
BACKLOG = 128
ACCEPT_AGAIN_SECONDS = 1.0
"""After no connection could be taken, as when this process may open no more files."""


class SocketDoor:
    """Listens at `path`, where it replaces what an earlier agent left. Raises OSError."""

    def __init__(self, loop: Loop, path: str, opened: Callable[[SocketChannel], None]) -> None:
        self._loop = loop
        self._path = path
        self._opened = opened
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._listen()
        except BaseException:
            self._socket.close()
            raise
        loop.watch(self._socket.fileno(), READ, self._accept)

    def _listen(self) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._path)
        with _short(self._path) as short:
            self._socket.bind(short)
        os.chmod(self._path, 0o600)  # before anybody can connect
        self._socket.listen(BACKLOG)

    def close(self) -> None:
        """Take no more connections; those that are open stay."""
        if self._socket.fileno() < 0:
            return
        self._loop.forget(self._socket.fileno())
        self._socket.close()
        with suppress(FileNotFoundError):
            os.unlink(self._path)

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:
            # The client goes on waiting at the door, which would call us again at once.
            self._loop.forget(self._socket.fileno())
            self._loop.later(ACCEPT_AGAIN_SECONDS, self._accept_again)
            return
        connection.setblocking(False)
        self._opened(SocketChannel(self._loop, connection))

    def _accept_again(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.watch(self._socket.fileno(), READ, self._accept)


def connect(path: str) -> socket.socket:
    """A connection to the agent that listens at `path`, blocking. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(path) as short:
            connection.connect(short)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _short(path: str) -> Iterator[str]:
    """The same place in few bytes: an address of a Unix socket has room for 107."""
    directory, name = os.path.split(path)
    fd = os.open(directory or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)


class SocketChannel:
    """One connection of a command as the agent sees it."""

    def __init__(self, loop: Loop, connection: socket.socket) -> None:
        self._loop = loop
        self._socket = connection
        self._buffer = LineBuffer()
        self._unsent = bytearray()
        self._events = 0
        self._line: Callable[[bytes], None] = lambda line: None
        self._ended: Callable[[str], None] = lambda reason: None

    def receive(self, line: Callable[[bytes], None], ended: Callable[[str], None]) -> None:
        self._line, self._ended = line, ended
        if self._is_open():
            self._watch(self._events | READ)

    def send(self, line: bytes) -> None:
        if not self._is_open():
            return
        self._unsent += line
        if not self._events & WRITE:
            self._write()
        if len(self._unsent) > MOST_UNSENT:
            self._end(f"it does not read: {len(self._unsent)} bytes are waiting for it")

    def close(self) -> None:
        self._ended = lambda reason: None
        self._drop()

    def _is_open(self) -> bool:
        return self._socket.fileno() >= 0

    def _drop(self) -> None:
        if self._is_open():
            self._loop.forget(self._socket.fileno())
            self._socket.close()
            self._unsent.clear()

    def _end(self, reason: str) -> None:
        """We may be inside a call of our owner's, who is told when it has returned."""
        self._drop()
        self._loop.post(lambda: self._tell(reason))

    def _tell(self, reason: str) -> None:
        ended, self._ended = self._ended, lambda reason: None
        ended(reason)

    def _watch(self, events: int) -> None:
        self._events = events
        if events:
            self._loop.watch(self._socket.fileno(), events, self._ready)
        else:
            self._loop.forget(self._socket.fileno())

    def _ready(self) -> None:
        if self._events & WRITE:
            self._write()
        if self._events & READ:
            self._read()

    def _read(self) -> None:
        try:
            data = self._socket.recv(65536)
            lines = self._buffer.feed(data)
        except BlockingIOError:
            return
        except (LineTooLong, OSError) as error:
            self._end(str(error))
            return
        for line in lines:
            if self._is_open():
                self._line(line)
        if not data and self._is_open():
            self._end("the connection was closed")

    def _write(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            self._watch(self._events | WRITE)
            return
        except OSError:
            self._unsent.clear()  # it has gone, which reading will tell after what it said before
        if self._events & WRITE:
            self._watch(self._events & ~WRITE)

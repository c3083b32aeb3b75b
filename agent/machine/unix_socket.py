"""Where commands in this pod reach its agent: connections on a Unix stream socket, one message per line."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from agent.errors import UsageError
from agent.machine.loop import AGAIN_SECONDS, READ, Loop
from agent.machine.stream import LineStream

MOST_UNSENT = 64 * 1024 * 1024
"""Bytes that may wait for a client that does not read."""
MOST_REQUEST = 1024 * 1024
"""Bytes of one request: it is passed on to pods in a message, which has a limit too."""
NOBODYS = 0
"""The number of no request: a full agent says that it is to whoever comes."""
BACKLOG = 128
KEPT_FILES = 256
"""Descriptors for the rest of the agent's work: channels, logs, and the pipes of programs."""


def too_large(size: int) -> UsageError:
    """The refusal of a request with so many bytes."""
    return UsageError(
        f"the command and the variables that go with it have {size:,} bytes, an agent takes {MOST_REQUEST:,}",
        "put what is long into a file that all pods see, such as one in A4_SHARED_DIR, and name that; "
        "unset long variables of this shell, which go with the command",
    )


def take_connections(loop: Loop, listener: socket.socket, opened: Callable[[socket.socket], None]) -> None:
    """Take those that come to a listening socket, which does not block."""

    def watch() -> None:
        loop.watch(listener.fileno(), READ, accept)

    def accept() -> None:
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:
            # The client goes on waiting at the door, which would call us again at once.
            loop.forget(listener.fileno())
            loop.later(AGAIN_SECONDS, watch)
            return
        opened(connection)

    watch()


def open_door(loop: Loop, path: str, opened: Callable[[LineStream], None], full: bytes = b"") -> socket.socket:
    """Listen at `path`, in place of what an earlier agent left. A connection that takes one of the last descriptors
    gets the line `full`, and is closed. Raises OSError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        with suppress(FileNotFoundError):
            os.unlink(path)
        with _short(path) as short:
            listener.bind(short)
        os.chmod(path, 0o600)  # before anybody can connect
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise

    def taken(connection: socket.socket) -> None:
        if full and connection.fileno() >= _first_kept():
            with connection, suppress(OSError):
                connection.sendall(full)
            return
        opened(LineStream(loop, connection, connection, most_unsent=MOST_UNSENT))

    take_connections(loop, listener, taken)
    return listener


def _first_kept() -> int:
    """The first descriptor that is kept for other work. A new one has the lowest number that is free: beyond this, few
    are left, whoever has them."""

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most - min(most // 2, KEPT_FILES)


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

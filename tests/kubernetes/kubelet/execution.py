"""`kubectl exec`: a command in a container, its streams on a WebSocket of the protocol v5.channel.k8s.io."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage

from tests.kubernetes.kubelet.fields import Object

PROTOCOL = "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
"""The first byte of each message."""
PIECE = 32768
ACCEPTED = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def status(code: int) -> Object:
    """How the command ended, as kubectl takes it for its own exit code."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    cause = {"reason": "ExitCode", "message": str(code)}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with exit code {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [cause]},
    }


def refusal(words: str) -> Object:
    return {"metadata": {}, "status": "Failure", "message": words, "reason": "InternalError", "code": 500}


class Channels:
    """The streams of one WebSocket. `send` may be called on any thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._protocol = Connection(ConnectionType.SERVER)
        self._lock = threading.Lock()

    def send(self, channel: int, data: bytes) -> None:
        self._send(BytesMessage(bytes([channel]) + data))

    def close(self) -> None:
        with suppress(OSError):
            self._send(CloseConnection(1000))

    def received(self) -> Iterator[tuple[int, bytes]]:
        """Messages, until the other side closes."""
        whole = b""
        while data := self._socket.recv(PIECE):
            self._protocol.receive_data(data)
            for event in self._protocol.events():
                if isinstance(event, Ping):
                    self._send(event.response())
                elif isinstance(event, CloseConnection):
                    return
                elif isinstance(event, (BytesMessage, TextMessage)):
                    piece = event.data
                    whole += piece.encode() if isinstance(piece, str) else bytes(piece)
                    if event.message_finished and whole:
                        yield whole[0], whole[1:]
                        whole = b""

    def _send(self, event: Event) -> None:
        with self._lock:
            self._socket.sendall(self._protocol.send(event))


def serve(channels: Channels, execute: Callable[..., Any], argv: list[str], wanted: set[str]) -> None:
    """Run the command until it ends, and tell how. `wanted` are of input, output, error and tty."""
    try:
        process, ends = _started(execute, argv, wanted)
    except OSError as error:
        channels.send(ERROR, json.dumps(refusal(f"exec: {argv[0]}: {error.strerror or error}")).encode())
        channels.close()
        return
    readers = [threading.Thread(target=_pump, args=(channels, STDOUT, ends["out"]), daemon=True)]
    if "err" in ends:
        readers.append(threading.Thread(target=_pump, args=(channels, STDERR, ends["err"]), daemon=True))
    listener = threading.Thread(target=_listen, args=(channels, process, ends), daemon=True)
    for thread in (*readers, listener):
        thread.start()
    code = process.wait()
    for reader in readers:
        reader.join()
    with suppress(OSError):
        channels.send(ERROR, json.dumps(status(code if code >= 0 else 128 - code)).encode())
    channels.close()


def _started(execute: Callable[..., Any], argv: list[str], wanted: set[str]) -> tuple[Any, dict[str, int]]:
    """The process, and our ends of its streams."""
    if "tty" in wanted:
        ours, theirs = os.openpty()
        given = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        ends = {"in": ours, "out": ours}
    else:
        (read_in, write_in), (read_out, write_out), (read_err, write_err) = (os.pipe() for _ in range(3))
        given = {"stdin": read_in, "stdout": write_out, "stderr": write_err}
        ends = {"in": write_in, "out": read_out, "err": read_err}
    try:
        process = execute(argv, tty="tty" in wanted, **given)
    except OSError:
        for each in set(ends.values()):
            os.close(each)
        raise
    finally:
        for each in set(given.values()):
            os.close(each)
    if "input" not in wanted and "tty" not in wanted:
        os.close(ends.pop("in"))
    return process, ends


def _pump(channels: Channels, channel: int, source: int) -> None:
    with suppress(OSError):
        while data := os.read(source, PIECE):
            channels.send(channel, data)


def _listen(channels: Channels, process: Any, ends: dict[str, int]) -> None:
    """What comes from the other side; when that goes, the command is killed."""
    with suppress(OSError):
        for channel, data in channels.received():
            if channel == STDIN and "in" in ends:
                os.write(ends["in"], data)
            elif channel == CLOSE and "in" in ends:
                os.close(ends.pop("in"))
            elif channel == RESIZE and "in" in ends:
                size = json.loads(data)
                fcntl.ioctl(ends["in"], termios.TIOCSWINSZ, struct.pack("HHHH", size["Height"], size["Width"], 0, 0))
    if process.poll() is None:
        process.kill()

"""`kubectl exec`: a command in a container, its streams on a WebSocket of the protocol v5.channel.k8s.io."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage

from agent.errors import AgentError
from tests.kubernetes.command import Command
from tests.kubernetes.kubelet.fields import Object
from tests.kubernetes.runtime import Container, RuntimeLost

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


def serve(channels: Channels, container: Container, argv: list[str], wanted: set[str]) -> None:
    """Run the command until it ends, and tell how. `wanted` are of input, output, error and tty."""
    try:
        command = container.exec(argv, piped=True, tty="tty" in wanted)
    except (OSError, AgentError, RuntimeLost) as error:
        channels.send(ERROR, json.dumps(refusal(f"exec {argv[0]}: {error}")).encode())
        channels.close()
        return
    with command:
        sources = {STDOUT: command.stdout, STDERR: command.stderr}
        ends = {channel: file.fileno() for channel, file in sources.items() if file} or {STDOUT: command.terminal}
        if "input" not in wanted and command.stdin:
            command.stdin.close()
        threading.Thread(target=_listen, args=(channels, command), daemon=True).start()
        readers = [threading.Thread(target=_pump, args=(channels, *end), daemon=True) for end in ends.items()]
        for reader in readers:
            reader.start()
        code = command.wait()
        for reader in readers:
            reader.join()
        with suppress(OSError):
            channels.send(ERROR, json.dumps(status(code)).encode())
        channels.close()


def _pump(channels: Channels, channel: int, source: int) -> None:
    with suppress(OSError):
        while data := os.read(source, PIECE):
            channels.send(channel, data)


def _listen(channels: Channels, command: Command) -> None:
    """What comes from the other side; when that goes, the command is killed."""
    with suppress(OSError, ValueError):
        for channel, data in channels.received():
            if channel == STDIN:
                os.write(command.stdin.fileno() if command.stdin else command.terminal, data)
            elif channel == CLOSE and command.stdin:
                command.stdin.close()
            elif channel == RESIZE and command.terminal >= 0:
                size = json.loads(data)
                command.resize(size["Height"], size["Width"])
    with suppress(OSError, AgentError):
        command.send_signal(signal.SIGHUP, group=True)

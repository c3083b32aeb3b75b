"""Control channels from the coordinator: paramiko, every failure typed."""

from __future__ import annotations

import errno
import io
import logging
import os
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import paramiko
from paramiko import SSHException

from agent.machine.api import Channel, Problem, Target
from agent.machine.loop import WRITE, Action, Loop
from agent.machine.stream import READ_BYTES, LineStream
from agent.machine.workers import Workers

CONNECT_SECONDS = 5.0
HANDSHAKE_SECONDS = 20.0
"""For everything from the first byte to the command's start: hundreds of handshakes share the coordinator's cores."""
LAST_WORDS_BYTES = 4096
"""How much is kept of the remote command's stderr, which says why it ended."""
PIECE = 32768
# Cheap ones that every supported OpenSSH has: with a thousand peers the choice is seconds of CPU.
KEX = ("curve25519-sha256@libssh.org", "curve25519-sha256")
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr")

Done = Callable[[Channel | Problem], None]


def dial(loop: Loop, workers: Workers, target: Target, done: Done) -> None:
    """Open a control channel: TCP in the loop, the handshake in a thread of `workers`."""
    try:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError as error:  # too many files are open
        number = error.errno or errno.EMFILE
        loop.post(lambda: done(_connect_problem(target, number)))
        return
    failed = sock.connect_ex((target.address, target.port))
    if failed not in (0, errno.EINPROGRESS):
        sock.close()
        loop.post(lambda: done(_connect_problem(target, failed)))
        return
    timer = loop.later(CONNECT_SECONDS, lambda: finished(errno.ETIMEDOUT))

    def finished(error: int) -> None:
        timer.cancel()
        loop.forget(sock.fileno())
        if error:
            sock.close()
            done(_connect_problem(target, error))
        else:
            workers.submit(shake_hands)

    def shake_hands() -> Action:
        result = handshake(sock, target)
        if isinstance(result, Problem):
            return lambda: done(result)
        connection = _Connection(*result)
        return lambda: done(_stream(loop, connection))

    loop.watch(sock.fileno(), WRITE, lambda: finished(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)))


def handshake(
    sock: socket.socket, target: Target, seconds: float = HANDSHAKE_SECONDS
) -> tuple[paramiko.Transport, paramiko.Channel] | Problem:
    """Negotiate, check the host key, log in and start the channel's command. Blocks for `seconds` at most."""

    logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)  # failures come back as values
    transport = None
    # paramiko waits for ever for the answer to exec_command; its other limits are set below, as some are shorter.
    limit = threading.Timer(seconds, _hang_up, [sock])
    limit.daemon = True
    try:
        limit.start()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport = paramiko.Transport(sock)
        transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = seconds
        _limit_algorithms(transport)
        transport.start_client(timeout=seconds)
        problem = _check_host_key(transport, target)
        if problem is None:
            key = paramiko.Ed25519Key.from_private_key(io.StringIO(target.client_key))
            transport.auth_publickey("root", key)
            channel = transport.open_session(timeout=seconds)
            channel.exec_command(target.command.encode())
            sock.settimeout(3600.0)  # paramiko wakes ten times a second otherwise
            # A peer whose machine confirms nothing for 30 s is cut off, so that no writer waits longer.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
            return transport, channel
    except Exception as error:  # whatever answers there may send anything, and paramiko trips over it in many ways
        problem = Problem("ssh", f"SSH to {target.address}:{target.port} broke: {error or 'connection closed'}")
        # paramiko raises the same where the connection ends before the answer.
        if isinstance(error, paramiko.AuthenticationException) and transport is not None and transport.is_active():
            why = f"{target.address} refuses the job's SSH key (another secret or epoch there?)"
            problem = Problem("key-refused", why)
    finally:
        limit.cancel()
    if transport is not None:
        transport.close()
        transport.packetizer.complete_handshake()  # ends paramiko's timer, for which an exit would wait
    sock.close()
    return problem


def _hang_up(sock: socket.socket | paramiko.Channel) -> None:
    with suppress(OSError):  # it is closed already
        sock.shutdown(socket.SHUT_RDWR)


def _limit_algorithms(transport: paramiko.Transport) -> None:
    options = transport.get_security_options()
    options.kex = tuple(name for name in KEX if name in options.kex)
    options.ciphers = tuple(name for name in CIPHERS if name in options.ciphers)
    options.key_types = ("ssh-ed25519",)


def _check_host_key(transport: paramiko.Transport, target: Target) -> Problem | None:
    key = transport.get_remote_server_key()
    if f"{key.get_name()} {key.get_base64()}" == target.host_key:
        return None
    return Problem(
        "host-key",
        f"{target.address}:{target.port} shows a host key that is not pod {target.index}'s "
        f"({key.fingerprint}): another job or attempt answers there, or its secret differs",
    )


def _connect_problem(target: Target, error: int) -> Problem:
    where = f"port {target.port} at {target.address}"
    if error == errno.ECONNREFUSED:
        return Problem("refused", f"DNS ok, {where} refused")
    if error == errno.ETIMEDOUT:
        return Problem("timeout", f"DNS ok, {where} does not answer")
    return Problem("unreachable", f"DNS ok, {where}: {os.strerror(error)}")


class _Connection:
    """What paramiko has of a control channel, as both ends of a stream."""

    def __init__(self, transport: paramiko.Transport, channel: paramiko.Channel) -> None:
        self._transport = transport
        self._channel = channel
        self._words = b""
        """The end of what the remote command said on stderr."""
        channel.setblocking(False)

    def fileno(self) -> int:
        return self._channel.fileno()

    def read(self) -> bytes:
        """Raises OSError with the command's last words where it has ended with some."""
        # Left unread, it would keep the descriptor ready and the loop spinning.
        self._read_stderr()
        try:
            data = self._channel.recv(READ_BYTES)
        except TimeoutError:
            raise BlockingIOError from None
        if not data:
            self._read_stderr()
            if words := self._words.decode(errors="replace").strip():
                raise OSError(words)
        return data

    def _read_stderr(self) -> None:
        with suppress(OSError):
            while self._channel.recv_stderr_ready():
                self._words = (self._words + self._channel.recv_stderr(4096))[-LAST_WORDS_BYTES:]

    def write(self, data: bytes | bytearray) -> int:
        """What the socket takes now; paramiko itself would wait for a peer that takes nothing."""

        sock = self._transport.sock
        try:
            if sock.fileno() < 0:
                raise EOFError
            poll = select.poll()
            poll.register(sock, select.POLLOUT)
            if poll.poll(0):
                return self._channel.send(bytes(data[:PIECE]))
        except TimeoutError:
            pass  # the peer's window is full
        except (OSError, EOFError, SSHException) as error:
            _hang_up(sock)  # as reading shall tell
            raise OSError("the connection broke") from error
        raise BlockingIOError

    def close(self) -> None:
        # paramiko wants to say good-bye, also where the connection is gone.
        with suppress(OSError, EOFError, SSHException):
            self._channel.close()  # its two pipe descriptors would wait for the garbage collector
        _hang_up(self._transport.sock)  # wakes paramiko's reader at once
        self._transport.close()


def _stream(loop: Loop, connection: _Connection) -> LineStream:
    # Paramiko has no descriptor that says when it takes more.
    stream = LineStream(loop, connection, connection, read=connection.read, write=connection.write, again_seconds=0.01)
    os.set_blocking(connection.fileno(), True)  # a pipe of paramiko's own, which it reads itself
    return stream

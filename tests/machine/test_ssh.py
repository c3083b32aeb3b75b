"""Control channels through a real sshd with the agent's own configuration and keys."""

from __future__ import annotations

import io
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import paramiko
import pytest
from paramiko.common import AUTH_FAILED

from agent.decide.keys import JobKeys
from agent.machine import ssh
from agent.machine.api import Channel, Problem, Target
from agent.machine.loop import Action, Loop
from agent.machine.ssh import handshake
from agent.machine.workers import Workers
from tests.machine.sshd import KEYS, Sshd, free_port, serving
from tests.machine.waiting import run

OTHER = JobKeys(b"s" * 32, "another-attempt")
HOSTILE = "a \"b\" 'c' \\d #e $(f)"


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    env = {"PATH": "/usr/bin:/bin", "SHLVL": "2", "HOSTILE": HOSTILE}
    with serving(tmp_path_factory.mktemp("ssh"), session_env=env) as daemon:
        yield daemon


def dial(loop: Loop, target: Target) -> Channel | Problem:
    results: list[Channel | Problem] = []

    def done(result: Channel | Problem) -> None:
        results.append(result)
        loop.stop()

    ssh.dial(loop, Workers(loop, 2), target, done)
    run(loop)
    return results[0]


def refused(target: Target) -> Problem:
    """Why no channel can be opened."""
    result = dial(Loop(), target)
    assert isinstance(result, Problem)
    return result


def talk(sshd: Sshd, command: str, *lines: bytes, expect: int) -> tuple[list[bytes], str]:
    """Send lines to the command: `expect` lines that it answers, and how it ended if it did by itself."""
    loop, heard, ends = Loop(), list[bytes](), list[str]()
    channel = dial(loop, sshd.target._replace(command=command))
    assert not isinstance(channel, Problem), channel

    def line(data: bytes) -> None:
        heard.append(data)
        if len(heard) == expect:
            channel.close()
            loop.stop()

    def ended(reason: str) -> None:
        ends.append(reason)
        loop.stop()

    channel.receive(line, ended)
    for data in lines:
        channel.send(data)
    run(loop)
    return heard, "".join(ends)


def test_more_than_a_window_arrives_whole(sshd: Sshd) -> None:
    big = b"x" * 3_000_000
    assert talk(sshd, "cat", big + b"\n", b"end\n", expect=2) == ([big, b"end"], "")


def test_a_session_has_the_environment_that_the_configuration_gives(sshd: Sshd) -> None:
    heard, _ = talk(sshd, 'echo "$HOSTILE"; echo "$SHLVL"', expect=2)
    assert heard[0].decode() == HOSTILE
    assert int(heard[1]) >= 2


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("echo no agent here >&2; exit 3", "no agent here"),
        ("true", "the connection was closed"),
        ("head -c 9000 /dev/zero | tr '\\0' x >&2; echo the end >&2", "the end"),
    ],
)
def test_the_last_words_of_the_command_are_the_reason(command: str, reason: str, sshd: Sshd) -> None:
    heard, end = talk(sshd, command, expect=1)
    assert heard == []
    assert end.endswith(reason)
    assert len(end) <= 4096


def test_a_connection_that_breaks_while_much_is_sent_has_an_end(sshd: Sshd) -> None:
    command = "read line; kill -KILL $PPID"  # not before the channel is open on both sides
    heard, end = talk(sshd, command, b"go on\n" + b"x" * 5_000_000 + b"\n", expect=1)
    assert (heard, end) == ([], "the connection was closed")


def test_words_on_stderr_do_not_keep_the_loop_busy(sshd: Sshd) -> None:
    """A shell may complain about its locale in every session: the channel must then be quiet, not ready."""
    ready: list[object] = []
    watched: list[int] = []

    class Watching(Loop):
        def watch(self, fd: int, events: int, action: Action) -> None:
            watched.append(fd)
            super().watch(fd, events, action)

    loop = Watching()
    channel = dial(loop, sshd.target._replace(command="echo warning >&2; echo up; read x; echo $x; cat"))
    assert not isinstance(channel, Problem), channel

    def line(data: bytes) -> None:
        if data == b"up":
            channel.send(b"go on\n")
            return
        ready.extend(select.select([watched[-1]], [], [], 0)[0])
        channel.close()
        loop.stop()

    channel.receive(line, lambda reason: loop.stop())
    run(loop)
    assert len(watched) >= 2
    assert ready == []


def test_a_wrong_host_key(sshd: Sshd) -> None:
    for key in (OTHER.host_public(3), KEYS.host_public(4), KEYS.client_public()):
        problem = refused(sshd.target._replace(host_key=key))
        assert problem.kind == "host-key"
        assert "pod 3" in problem.text


def test_a_refused_key(sshd: Sshd) -> None:
    problem = refused(sshd.target._replace(client_key=OTHER.client_private()))
    assert problem.kind == "key-refused"


def test_nobody_listens(sshd: Sshd) -> None:
    port = free_port()
    problem = refused(sshd.target._replace(port=port))
    assert problem == Problem("refused", f"DNS ok, port {port} at 127.0.0.1 refused")


@contextmanager
def connected(sshd: Sshd) -> Iterator[tuple[socket.socket, socket.socket, Target]]:
    """A client's connection, its other side, which is no sshd, and that as a target."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        connection, _ = server.accept()
        with connection:
            yield client, connection, sshd.target._replace(port=server.getsockname()[1])


@pytest.mark.parametrize(
    "words", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-x\r\n", b"SSH-2.0-x\r\n" + b"\0" * 99]
)
def test_somebody_who_never_gets_further(words: bytes, sshd: Sshd) -> None:
    with connected(sshd) as (client, connection, target):
        connection.sendall(words)
        result = handshake(client, target, seconds=0.5)
    assert isinstance(result, Problem)
    assert (result.kind, result.text.split(":")[0]) == ("ssh", "SSH to 127.0.0.1")
    assert client.fileno() == -1
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    assert all(timer.finished.is_set() for timer in timers)


def test_a_connection_that_ends_at_once(sshd: Sshd) -> None:
    with connected(sshd) as (client, connection, target):
        connection.close()
        result = handshake(client, target)
    assert isinstance(result, Problem)
    assert result.kind == "ssh"


class Leaving(paramiko.ServerInterface):
    """Breaks the connection when a key is shown to it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self._connection.shutdown(socket.SHUT_RDWR)
        return AUTH_FAILED


def test_a_connection_that_ends_at_the_login_is_no_refusal(sshd: Sshd) -> None:
    with connected(sshd) as (client, connection, target):
        transport = paramiko.Transport(connection)
        transport.add_server_key(paramiko.Ed25519Key.from_private_key(io.StringIO(KEYS.host_private(3))))
        transport.start_server(event=threading.Event(), server=Leaving(connection))
        result = handshake(client, target)
        transport.close()
    assert isinstance(result, Problem)
    assert result.kind == "ssh"

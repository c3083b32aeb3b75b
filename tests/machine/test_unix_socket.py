"""The agent's socket: real connections, good clients and bad ones."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agent.machine.loop import Loop
from agent.machine.stream import MOST_BYTES, LineStream
from agent.machine.unix_socket import MOST_UNSENT, connect, open_door
from tests.machine.waiting import run


class Agent:
    """The agent's side; `on_open`, `on_line` and `on_end` take what follows. A connection that ends stops the loop."""

    def __init__(self, path: str) -> None:
        self.loop = Loop()
        self.path = path
        self.channels: list[LineStream] = []
        self.lines: list[bytes] = []
        self.ends: list[str] = []
        self.on_open: Callable[[LineStream], None] = self.receive
        self.on_line: Callable[[LineStream, bytes], None] = lambda channel, line: None
        self.on_end: Callable[[], None] = self.loop.stop
        self.door = open_door(self.loop, path, self._opened)
        self.clients: list[socket.socket] = []
        self.threads: list[threading.Thread] = []

    def in_thread(self, work: Callable[[], None]) -> None:
        """Do in a thread what blocks. It must end by itself once the agent's side is closed."""
        self.threads.append(threading.Thread(target=work))
        self.threads[-1].start()

    def _opened(self, channel: LineStream) -> None:
        self.channels.append(channel)
        self.on_open(channel)

    def receive(self, channel: LineStream) -> None:
        def line(data: bytes) -> None:
            self.lines.append(data)
            self.on_line(channel, data)

        def ended(reason: str) -> None:
            self.ends.append(reason)
            self.on_end()

        channel.receive(line, ended)

    def client(self) -> socket.socket:
        self.clients.append(connect(self.path))
        return self.clients[-1]

    def close(self) -> None:
        self.loop.forget(self.door.fileno())
        self.door.close()
        for channel in self.channels:
            channel.close()
        for thread in self.threads:  # they use the clients
            thread.join()
        for client in self.clients:
            client.close()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(str(tmp_path / "agent.sock"))
    yield agent
    agent.close()


def hear(client: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = client.recv(1 << 20)
        assert piece, f"closed after {len(data)} bytes"
        data += piece
    return bytes(data)


def test_lines_go_both_ways_in_pieces(agent: Agent) -> None:
    """A line may come in halves, and several in one piece."""

    def answer(channel: LineStream, line: bytes) -> None:
        channel.send(b"heard " + line + b"\n")
        if line == b"one":
            client.sendall(b"o\nthree\n")
        elif line == b"three":
            agent.loop.stop()

    agent.on_line = answer
    client = agent.client()
    client.sendall(b"one\ntw")
    run(agent.loop)
    assert agent.lines == [b"one", b"two", b"three"]
    expected = b"heard one\nheard two\nheard three\n"
    assert hear(client, len(expected)) == expected
    agent.channels[0].close()
    assert client.recv(1) == b""


def test_the_socket_is_ours_alone(agent: Agent) -> None:
    assert stat.S_IMODE(os.stat(agent.path).st_mode) == 0o600


@pytest.mark.parametrize("left", ["socket", "file", "link"])
def test_what_an_earlier_agent_left_is_replaced(left: str, tmp_path: Path) -> None:
    path, other = tmp_path / "agent.sock", tmp_path / "other"
    other.write_text("precious")
    if left == "socket":
        with socket.socket(socket.AF_UNIX) as old:
            old.bind(str(path))
        with pytest.raises(ConnectionRefusedError):
            connect(str(path))
    elif left == "file":
        path.write_text("x")
    else:
        path.symlink_to(other)
    agent = Agent(str(path))
    agent.client().sendall(b"hello\n")
    agent.on_line = lambda channel, line: agent.loop.stop()
    run(agent.loop)
    agent.close()
    assert agent.lines == [b"hello"]
    assert other.read_text() == "precious"


def test_a_door_that_cannot_be_says_so(tmp_path: Path) -> None:
    (tmp_path / "agent.sock").mkdir()
    for path in (tmp_path / "agent.sock", tmp_path / "none" / "agent.sock"):
        with pytest.raises(OSError):
            open_door(Loop(), str(path), lambda channel: None)


def test_the_path_may_be_longer_than_an_address(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 120) / ("e" * 120)
    directory.mkdir(parents=True)
    agent = Agent(str(directory / "agent.sock"))
    agent.client().sendall(b"far\n")
    agent.on_line = lambda channel, line: agent.loop.stop()
    run(agent.loop)
    agent.close()
    assert agent.lines == [b"far"]
    assert os.listdir(directory) == ["agent.sock"]


def test_more_than_the_kernel_holds_arrives_whole(agent: Agent) -> None:
    """Answers wait for the client to read, without blocking the agent; requests still come in meanwhile."""
    lines = [os.urandom(500_000).hex().encode() + b"\n" for _ in range(20)]
    heard: list[bytes] = []

    def answer(channel: LineStream, line: bytes) -> None:
        if line == b"start":
            for one in lines:
                channel.send(one)
            client.sendall(b"still there?\n")
        elif line == b"still there?":
            agent.in_thread(read)
        else:
            agent.loop.stop()

    def read() -> None:
        heard.append(hear(client, sum(map(len, lines))))
        client.sendall(b"got it\n")

    agent.on_line = answer
    client = agent.client()
    client.sendall(b"start\n")
    run(agent.loop)
    assert heard == [b"".join(lines)]


def test_what_is_sent_before_anybody_listens_to_the_answer(agent: Agent) -> None:
    """An owner may send at once and receive later: until then nothing is read, and nothing is lost."""
    big = b"x" * 3_000_000 + b"\n"
    heard: list[bytes] = []

    def greet(channel: LineStream) -> None:
        channel.send(big)
        agent.in_thread(read)

    def read() -> None:
        heard.append(hear(client, len(big)))
        agent.loop.post(lambda: agent.receive(agent.channels[0]))

    agent.on_open = greet
    agent.on_line = lambda channel, line: agent.loop.stop()
    client = agent.client()
    client.sendall(b"early\n")
    run(agent.loop)
    assert heard == [big]
    assert agent.lines == [b"early"]


def test_many_clients_at_a_time(agent: Agent) -> None:
    count = 200

    def answer(channel: LineStream, line: bytes) -> None:
        channel.send(line + b" to you\n")
        if len(agent.lines) == count:
            agent.loop.stop()

    def talk() -> None:
        for number, client in enumerate([agent.client() for _ in range(count)]):
            client.sendall(b"%d\n" % number)

    agent.on_line = answer
    agent.in_thread(talk)
    run(agent.loop)
    for number, client in enumerate(agent.clients):
        expected = b"%d to you\n" % number
        assert hear(client, len(expected)) == expected


def test_the_end_of_a_client_comes_after_what_it_said(agent: Agent) -> None:
    client = agent.client()
    client.sendall(b"cancel\nhalf a li")
    client.close()
    agent.on_line = lambda channel, line: channel.send(b"nobody hears this\n" * 1000)
    run(agent.loop)
    assert (agent.lines, agent.ends) == ([b"cancel"], ["the connection was closed"])
    agent.channels[0].send(b"too late\n")


def test_a_client_that_dies_with_answers_unread(agent: Agent) -> None:
    client = agent.client()

    def answer(channel: LineStream, line: bytes) -> None:
        channel.send(b"x" * 10_000_000)
        client.close()

    agent.on_line = answer
    client.sendall(b"ask\n")
    run(agent.loop)
    assert len(agent.ends) == 1


def test_a_client_that_does_not_read_is_dropped_and_the_others_stay(agent: Agent) -> None:
    piece = b"x" * 1_000_000 + b"\n"
    sent: list[int] = []

    def answer(channel: LineStream, line: bytes) -> None:
        if line == b"flood":
            while not agent.ends and len(sent) < 1000:
                sent.append(len(piece))
                channel.send(piece)
            assert agent.ends == [], "the owner is told after its own call"
        else:
            channel.send(b"and you\n")
            agent.loop.stop()

    agent.on_line = answer
    idle, other = agent.client(), agent.client()
    agent.on_end = lambda: other.sendall(b"hello\n")
    idle.sendall(b"flood\n")
    run(agent.loop)
    assert len(agent.ends) == 1
    assert "it does not read" in agent.ends[0]
    assert sum(sent) > MOST_UNSENT
    assert hear(other, 8) == b"and you\n"


def test_a_line_that_never_ends_closes_the_connection(agent: Agent) -> None:
    client = agent.client()

    def flood() -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            while True:
                client.sendall(b"x" * 65536)

    agent.in_thread(flood)
    run(agent.loop)
    assert agent.ends == [f"a line of more than {MOST_BYTES} bytes"]


def test_an_owner_that_closes_hears_nothing_more(agent: Agent) -> None:
    def answer(channel: LineStream, line: bytes) -> None:
        channel.close()
        agent.loop.later(0.0, agent.loop.stop)

    agent.on_line = answer
    client = agent.client()
    client.sendall(b"one\ntwo\n")
    run(agent.loop)
    assert (agent.lines, agent.ends) == ([b"one"], [])
    assert client.recv(1) == b""


def test_children_do_not_inherit_the_socket(agent: Agent) -> None:
    agent.on_open = lambda channel: agent.loop.stop()
    agent.client()
    run(agent.loop)
    code = "import os; print([f for f in range(3, 999) if os.path.realpath(f'/proc/self/fd/{f}').count('socket:')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, close_fds=False)
    assert done.stdout == "[]\n", done.stderr


FULL = """
import resource, sys
from agent.machine.loop import Loop
from agent.machine.unix_socket import open_door

loop = Loop()
def opened(channel):
    channel.receive(lambda line: channel.send(b"heard " + line + b"\\n"), lambda reason: None)
open_door(loop, sys.argv[1], opened)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
def room():
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
loop.later(0.3, room)
print("ready", flush=True)
loop.run()
"""


def test_a_client_waits_while_the_agent_may_open_no_more_files(tmp_path: Path) -> None:
    path = str(tmp_path / "agent.sock")
    with subprocess.Popen([sys.executable, "-c", FULL, path], stdout=subprocess.PIPE) as full:
        try:
            assert full.stdout is not None
            assert full.stdout.readline() == b"ready\n"
            with connect(path) as client:
                client.sendall(b"hello\n")
                assert hear(client, 12) == b"heard hello\n"
        finally:
            full.kill()

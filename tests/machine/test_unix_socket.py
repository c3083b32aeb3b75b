"""The agent's socket: who may come, where it is, and clients in numbers. What a stream does is in test_stream.py."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.machine.loop import Loop
from agent.machine.stream import LineStream
from agent.machine.unix_socket import BACKLOG, MOST_UNSENT, connect, open_door
from tests.machine.listening import Listening
from tests.machine.waiting import run


class Agent(Listening):
    """The agent's side, and its clients."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = str(path)
        self.door = open_door(self.loop, self.path, self.opened)
        self.clients: list[socket.socket] = []

    def client(self, said: bytes) -> socket.socket:
        self.clients.append(connect(self.path))
        self.clients[-1].sendall(said)
        return self.clients[-1]

    def close(self) -> None:
        self.loop.forget(self.door.fileno())
        for channel in self.channels:
            channel.close()
        for end in (self.door, *self.clients):
            end.close()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(tmp_path / "agent.sock")
    yield agent
    agent.close()


def hear(client: socket.socket) -> bytes:
    """A line."""
    data = b""
    while not data.endswith(b"\n"):
        piece = client.recv(1 << 20)
        assert piece, f"closed after {len(data)} bytes"
        data += piece
    return data


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
    agent = Agent(path)
    agent.client(b"hello\n")
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
    agent = Agent(directory / "agent.sock")
    agent.client(b"far\n")
    run(agent.loop)
    agent.close()
    assert agent.lines == [b"far"]
    assert os.listdir(directory) == ["agent.sock"]


def test_many_clients_at_a_time(agent: Agent) -> None:
    count = BACKLOG + 70

    def answer(channel: LineStream, line: bytes) -> None:
        channel.send(line + b" to you\n")
        if len(agent.lines) == count:
            agent.loop.stop()

    agent.answer = answer
    talking = threading.Thread(target=lambda: [agent.client(b"%d\n" % number) for number in range(count)])
    talking.start()
    run(agent.loop)
    talking.join()
    assert [hear(client) for client in agent.clients] == [b"%d to you\n" % number for number in range(count)]


def test_a_client_that_does_not_read_is_dropped_and_the_others_stay(agent: Agent) -> None:
    def flood(channel: LineStream, line: bytes) -> None:
        channel.send(bytes(MOST_UNSENT))
        assert channel.is_open
        channel.send(bytes(1 << 20))  # more than the kernel has taken

    def answer(channel: LineStream, line: bytes) -> None:
        channel.send(b"and you\n")
        agent.loop.stop()

    agent.answer = flood
    agent.client(b"flood\n")
    run(agent.loop)
    assert "it does not read" in agent.ends[0]
    agent.answer = answer
    other = agent.client(b"hello\n")
    run(agent.loop)
    assert (hear(other), len(agent.ends)) == (b"and you\n", 1)


def test_children_do_not_inherit_the_socket(agent: Agent) -> None:
    agent.client(b"hello\n")
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
                assert hear(client) == b"heard hello\n"
        finally:
            full.kill()

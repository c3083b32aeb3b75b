"""The worker's end of control channels: the real script on one side, the agent's FIFOs on the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agent.machine.fifo import open_fifos
from agent.machine.stream import LineStream
from tests.machine.listening import Listening
from tests.machine.waiting import run, wait_until

SCRIPT = Path(__file__).parents[2] / "entrypoints" / "control-channel.sh"


def start(run_dir: Path) -> subprocess.Popen[bytes]:
    """A session, as an SSH daemon starts it."""
    pipe = subprocess.PIPE
    return subprocess.Popen(["sh", str(SCRIPT), str(run_dir)], stdin=pipe, stdout=pipe, stderr=pipe)


class Agent(Listening):
    """The agent's side, and the sessions that join it."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__()
        self.run_dir = run_dir
        self.directory = run_dir / "channels"
        self.directory.mkdir()
        open_fifos(self.loop, str(self.directory), self.opened)
        self.sessions: list[subprocess.Popen[bytes]] = []

    def join(self) -> subprocess.Popen[bytes]:
        self.sessions.append(start(self.run_dir))
        return self.sessions[-1]

    def files(self) -> set[str]:
        return set(os.listdir(self.directory))


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(tmp_path)
    yield agent
    for channel in agent.channels:
        channel.close()
    for session in agent.sessions:
        finish(session)


def finish(session: subprocess.Popen[bytes]) -> None:
    session.kill()
    session.wait()
    for pipe in (session.stdin, session.stdout, session.stderr):
        assert pipe is not None
        with suppress(BrokenPipeError):  # what a dead reader has not taken
            pipe.close()


def say(session: subprocess.Popen[bytes], data: bytes) -> None:
    assert session.stdin is not None
    session.stdin.write(data)
    session.stdin.flush()


def hear(session: subprocess.Popen[bytes]) -> bytes:
    assert session.stdout is not None
    return session.stdout.readline()


def end_of(session: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    """Exit status and stderr of a session that ends by itself."""
    assert session.stderr is not None
    text = session.stderr.read()
    return session.wait(), text


def test_the_end_of_the_connection_reaches_the_agent(agent: Agent) -> None:
    session = agent.join()
    say(session, b"half a line")
    assert session.stdin is not None
    session.stdin.close()
    run(agent.loop)
    assert (agent.lines, agent.ends) == ([], ["the connection was closed"])
    assert end_of(session) == (0, b"")
    assert agent.files() == {"door", "agent.pid"}
    agent.channels[0].send(b"too late\n")


def test_two_channels_go_both_ways_and_end_when_the_agent_closes_them(agent: Agent) -> None:
    def answer(channel: LineStream, line: bytes) -> None:
        channel.send(b"to " + line + b"\n")
        if len(agent.lines) == 4:
            agent.loop.stop()

    agent.answer = answer
    first, second = agent.join(), agent.join()
    for session, name in ((second, b"second"), (first, b"first")):
        say(session, name + b"\nmore\n")
    run(agent.loop)
    assert [hear(session) for session in (first, second, first)] == [b"to first\n", b"to second\n", b"to more\n"]
    assert len(agent.channels) == 2
    for channel in agent.channels:
        channel.close()
    assert [end_of(session) for session in (first, second)] == [(0, b""), (0, b"")]
    assert agent.files() == {"door", "agent.pid"}


def test_strange_words_at_the_door_are_passed_over(agent: Agent) -> None:
    with open(agent.directory / "door", "wb", buffering=0) as door:
        door.write(b"../../etc\n\n999999999\n-1\nx y\n")
    say(agent.join(), b"hello\n")
    run(agent.loop)
    assert agent.lines == [b"hello"]
    assert len(agent.channels) == 1


def test_a_new_agent_clears_what_an_earlier_one_left(agent: Agent) -> None:
    (agent.directory / "77.in").write_text("")
    open_fifos(agent.loop, str(agent.directory), lambda channel: None)
    assert agent.files() == {"door", "agent.pid"}
    assert (agent.directory / "agent.pid").read_text() == f"{os.getpid()}\n"


def join_without_agent(run_dir: Path) -> tuple[int, str]:
    done = subprocess.run(["sh", str(SCRIPT), str(run_dir)], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return done.returncode, done.stderr


def test_an_agent_that_never_was_and_one_that_has_gone(tmp_path: Path) -> None:
    assert join_without_agent(tmp_path) == (3, f"no a4-agent has been started here ({tmp_path})\n")
    (tmp_path / "channels").mkdir()
    gone = (1 << 22) + 1  # above all that Linux gives
    (tmp_path / "channels" / "agent.pid").write_text(f"{gone}\n")
    assert join_without_agent(tmp_path) == (3, f"a4-agent is not running here any more (pid {gone})\n")
    assert os.listdir(tmp_path / "channels") == ["agent.pid"]


AGENT = """
import os, sys
from agent.machine.fifo import open_fifos
from agent.machine.loop import Loop

loop, kept = Loop(), []
def opened(channel):
    kept.append(channel)
    channel.receive(lambda line: channel.send(b"heard " + line + b"\\n"), lambda reason: None)
open_fifos(loop, sys.argv[1], opened)
print("ready", flush=True)
loop.run()
"""


def test_a_killed_agent_ends_its_sessions(tmp_path: Path) -> None:
    directory = tmp_path / "channels"
    directory.mkdir()
    with subprocess.Popen([sys.executable, "-c", AGENT, str(directory)], stdout=subprocess.PIPE) as killed:
        assert hear(killed) == b"ready\n"
        session = start(tmp_path)
        say(session, b"one\n")
        assert hear(session) == b"heard one\n"
        killed.send_signal(signal.SIGKILL)
    assert end_of(session) == (0, b"")
    finish(session)
    wait_until(lambda: set(os.listdir(directory)) == {"door", "agent.pid"})

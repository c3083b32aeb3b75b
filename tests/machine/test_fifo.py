"""The worker's end of control channels: the real script on one side, the agent's FIFOs on the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agent.machine.fifo import open_fifos
from agent.machine.loop import Loop
from agent.machine.stream import LineStream
from tests.machine.waiting import run, wait_until

SCRIPT = Path(__file__).parents[2] / "entrypoints" / "control-channel.sh"


class Agent:
    """The agent's side, and the sessions that join it. `open` takes what follows when a channel opens."""

    def __init__(self, run_dir: Path) -> None:
        self.loop = Loop()
        self.run_dir = run_dir
        self.directory = run_dir / "channels"
        self.directory.mkdir()
        self.channels: list[LineStream] = []
        self.lines: list[bytes] = []
        self.ends: list[str] = []
        self.on_line: Callable[[LineStream, bytes], None] = lambda channel, line: None
        open_fifos(self.loop, str(self.directory), self._opened)
        self.sessions: list[subprocess.Popen[bytes]] = []

    def _opened(self, channel: LineStream) -> None:
        self.channels.append(channel)

        def line(data: bytes) -> None:
            self.lines.append(data)
            self.on_line(channel, data)

        def ended(reason: str) -> None:
            self.ends.append(reason)
            self.loop.stop()

        channel.receive(line, ended)

    def join(self) -> subprocess.Popen[bytes]:
        session = subprocess.Popen(
            ["sh", str(SCRIPT), str(self.run_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.sessions.append(session)
        return session

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


def test_lines_go_both_ways_and_the_agent_closing_ends_the_session(agent: Agent) -> None:
    def answer(channel: LineStream, line: bytes) -> None:
        if line == b"bye":
            agent.loop.stop()
        else:
            channel.send(b"heard " + line + b"\n")

    agent.on_line = answer
    session = agent.join()
    say(session, b"one\ntwo\nbye\n")
    run(agent.loop)
    assert agent.lines == [b"one", b"two", b"bye"]
    assert [hear(session), hear(session)] == [b"heard one\n", b"heard two\n"]
    agent.channels[0].close()
    assert end_of(session) == (0, b"")
    assert agent.files() == {"door", "agent.pid"}


def test_more_than_a_pipe_holds_arrives_whole(agent: Agent) -> None:
    """The agent's writes wait for the session to read, without blocking the agent."""
    big = os.urandom(400_000).hex().encode()
    heard: list[bytes] = []

    def answer(channel: LineStream, line: bytes) -> None:
        if line == b"start":
            channel.send(big + b"\n")
            channel.send(b"and this\n")
            agent.loop.aside(read, lambda none: None, lambda why: pytest.fail(str(why)))
        else:
            channel.close()
            agent.loop.stop()

    def read() -> None:
        heard.extend([hear(session), hear(session)])
        say(session, b"got it\n")

    agent.on_line = answer
    session = agent.join()
    say(session, b"start\n")
    run(agent.loop)
    assert heard == [big + b"\n", b"and this\n"]
    assert end_of(session)[0] == 0


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


def test_two_channels_at_a_time(agent: Agent) -> None:
    def answer(channel: LineStream, line: bytes) -> None:
        channel.send(b"to " + line + b"\n")
        if len(agent.lines) == 2:
            agent.loop.stop()

    agent.on_line = answer
    first, second = agent.join(), agent.join()
    say(second, b"second\n")
    say(first, b"first\n")
    run(agent.loop)
    assert (hear(first), hear(second)) == (b"to first\n", b"to second\n")
    assert len(agent.channels) == 2
    for channel in agent.channels:
        channel.close()
    assert [end_of(session) for session in (first, second)] == [(0, b""), (0, b"")]
    assert agent.files() == {"door", "agent.pid"}


def test_a_line_that_never_ends_closes_the_channel(agent: Agent) -> None:
    session = agent.join()

    def flood() -> None:
        with suppress(BrokenPipeError):
            while True:
                say(session, b"x" * 65536)

    agent.loop.aside(flood, lambda none: None, lambda why: pytest.fail(str(why)))
    run(agent.loop)
    assert "a line of more than" in agent.ends[0]
    assert end_of(session)[0] == 0


def test_strange_words_at_the_door_are_passed_over(agent: Agent) -> None:
    with open(agent.directory / "door", "wb", buffering=0) as door:
        door.write(b"../../etc\n\n999999999\n-1\nx y\n")
    agent.on_line = lambda channel, line: agent.loop.stop()
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


def test_no_agent_was_ever_started(tmp_path: Path) -> None:
    assert join_without_agent(tmp_path) == (3, f"no a4-agent has been started here ({tmp_path})\n")


def test_the_agent_has_gone(tmp_path: Path) -> None:
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
    session = None
    with subprocess.Popen([sys.executable, "-c", AGENT, str(directory)], stdout=subprocess.PIPE) as killed:
        assert hear(killed) == b"ready\n"
        session = subprocess.Popen(
            ["sh", str(SCRIPT), str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        say(session, b"one\n")
        assert hear(session) == b"heard one\n"
        killed.send_signal(signal.SIGKILL)
    assert end_of(session) == (0, b"")
    finish(session)
    wait_until(lambda: set(os.listdir(directory)) == {"door", "agent.pid"})

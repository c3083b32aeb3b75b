"""Lines over descriptors: both sides of real sockets, pipes and FIFOs, in one loop."""

from __future__ import annotations

import gc
import os
import socket
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.machine.loop import WRITE, Loop
from agent.machine.stream import MOST_BYTES, LineBuffer, LineStream, LineTooLong
from tests.laws import examples
from tests.machine.waiting import run

CLOSED = "the connection was closed"
BIG = b"x" * 3_000_000 + b"\n"
"""More than the kernel holds for a reader."""
TEXTS = st.lists(st.sampled_from([b"\n", b"a", b"bc", b"\0\xff"])).map(b"".join)


class Connection:
    """`ours` and `theirs` make a stream of each side; a test may write and read theirs itself, without blocking."""

    def __init__(self, kind: str) -> None:
        self.loop = Loop()
        self.lines: list[bytes] = []
        self.ends: list[str] = []
        self.files: list[IO[bytes] | socket.socket] = []
        if kind == "socket":
            ours, theirs = socket.socketpair()
            theirs.setblocking(False)
            self.files = [ours, ours, theirs, theirs]
        else:
            (read, their_write), (their_read, write) = os.pipe(), os.pipe2(os.O_NONBLOCK)
            modes = {read: "rb", write: "wb", their_read: "rb", their_write: "wb"}
            self.files = [os.fdopen(fd, mode, buffering=0) for fd, mode in modes.items()]

    def ours(self, **options: Any) -> LineStream:
        return LineStream(self.loop, self.files[0], self.files[1], **options)

    def theirs(self) -> LineStream:
        return LineStream(self.loop, self.files[2], self.files[3])

    def receive(self, stream: LineStream, drained: Callable[[], None] = lambda: None) -> None:
        """Keep what comes; the end stops the loop."""
        stream.receive(self.lines.append, self.ended, drained)

    def ended(self, reason: str) -> None:
        self.ends.append(reason)
        self.loop.stop()

    def say(self, data: bytes) -> None:
        os.write(self.files[3].fileno(), data)

    def hear(self) -> bytes:
        return os.read(self.files[2].fileno(), len(BIG))

    def hang_up(self) -> None:
        for file in self.files[2:]:
            file.close()

    def turn(self) -> None:
        """Let the loop do what it can do now, and no more."""
        self.loop.later(0.0, self.loop.stop)
        run(self.loop)

    def close(self) -> None:
        for file in self.files:
            file.close()


@pytest.fixture(params=["socket", "pipes"])
def connection(request: pytest.FixtureRequest) -> Iterator[Connection]:
    with closing(Connection(request.param)) as connection:
        yield connection


# Cutting


@given(text=TEXTS, size=st.integers(1, 5))
def test_all_lines_before_the_end_and_nothing_of_half_a_line(text: bytes, size: int) -> None:
    """However few bytes come at a time: `read` brings them, and stands in for what the source holds."""
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    with closing(Connection("pipes")) as connection:
        connection.hang_up()  # ready to be read, again and again
        connection.receive(connection.ours(read=lambda: pieces.pop(0) if pieces else b""))
        run(connection.loop)
        assert (connection.lines, connection.ends) == (text.split(b"\n")[:-1], [CLOSED])


@pytest.mark.parametrize("most", [0, 5, MOST_BYTES])
def test_a_line_may_be_so_long_and_no_longer(most: int) -> None:
    buffer = LineBuffer(most)
    assert buffer.feed(b"x" * most) == []
    assert buffer.feed(b"\n" + b"y" * most) == [b"x" * most]
    with pytest.raises(LineTooLong, match=f"a line of more than {most} bytes"):
        buffer.feed(b"y")


def test_a_line_that_is_too_long_ends_the_stream(connection: Connection) -> None:
    connection.receive(connection.ours(most_line=5))
    connection.say(b"12345\n12345")
    connection.turn()
    assert (connection.lines, connection.ends) == ([b"12345"], [])
    connection.say(b"6")
    run(connection.loop)
    assert (connection.lines, connection.ends) == ([b"12345"], ["a line of more than 5 bytes"])


# Both ways


@pytest.mark.parametrize("kind", ["socket", "pipes"])
@given(sizes=st.lists(st.sampled_from([0, 1, 70, 4096, 65535, 65536, 300_000]), max_size=12))
@examples(20)
def test_what_is_sent_arrives_in_order(kind: str, sizes: list[int]) -> None:
    """Whatever the sizes, and while as much comes back."""
    sent = [b"%d " % number + b"x" * size for number, size in enumerate(sizes)] + [b"end"]
    with closing(Connection(kind)) as connection:
        ours, theirs, back = connection.ours(), connection.theirs(), list[bytes]()

        def returned(line: bytes) -> None:
            back.append(line)
            if line == b"end":
                ours.close()

        def heard(line: bytes) -> None:
            connection.lines.append(line)
            theirs.send(line + b"\n")

        ours.receive(returned, connection.ended)
        theirs.receive(heard, connection.ended)
        for line in sent:
            ours.send(line + b"\n")
        run(connection.loop)
        assert connection.lines == back == sent
        assert connection.ends == [CLOSED]


def test_what_the_other_side_takes_has_gone_when_send_returns(connection: Connection) -> None:
    ours = connection.ours()
    ours.send(b"one\n")
    ours.send(b"two\n")
    assert ours.is_idle
    assert connection.hear() == b"one\ntwo\n"


def test_nothing_is_read_before_somebody_receives_it(connection: Connection) -> None:
    ours, theirs = connection.ours(), connection.theirs()
    theirs.send(b"early\n")
    ours.send(BIG)
    taken: list[int] = []

    def heard(line: bytes) -> None:
        taken.append(len(line))
        connection.loop.stop()

    theirs.receive(heard, connection.ended)
    run(connection.loop)
    assert (taken, connection.lines) == ([len(BIG) - 1], [])
    connection.receive(ours)
    connection.turn()
    assert connection.lines == [b"early"]


def test_a_fifo_that_nobody_has_opened_yet_is_not_at_its_end(tmp_path: Path) -> None:
    """It reads as if it were: so it is left alone while only the other way can go on."""
    os.mkfifo(tmp_path / "in")
    source = os.fdopen(os.open(tmp_path / "in", os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0)
    with closing(Connection("pipes")) as connection, source:
        stream = LineStream(connection.loop, source, connection.files[1])
        connection.receive(stream)
        stream.send(BIG)
        while not stream.is_idle:
            connection.hear()
            connection.turn()
        assert connection.ends == []
        (tmp_path / "in").write_bytes(b"here\n")
        run(connection.loop)
        assert (connection.lines, connection.ends) == ([b"here"], [CLOSED])


# Readers that do not read, and that are gone


def test_who_does_not_read_is_told_of_after_the_call(connection: Connection) -> None:
    ours = connection.ours(most_unsent=len(BIG))
    connection.receive(ours)
    ours.send(BIG)
    assert ours.is_open
    ours.send(BIG)
    assert (ours.is_open, connection.ends) == (False, [])
    ours.send(BIG)
    run(connection.loop)
    (reason,) = connection.ends
    assert reason.startswith("it does not read: ") and reason.endswith(" bytes are waiting for it")
    while connection.hear():  # up to the end: ours are closed
        pass


def test_who_closes_is_not_told_that_nobody_reads(connection: Connection) -> None:
    ours = connection.ours(most_unsent=10)
    connection.receive(ours)
    ours.send(BIG)
    ours.close()
    connection.turn()
    assert connection.ends == []


def test_an_emptied_queue_is_told_once_and_from_the_loop(connection: Connection) -> None:
    ours, drained = connection.ours(), list[bool]()
    connection.receive(ours, lambda: drained.append(ours.is_idle))
    ours.send(b"small\n")
    ours.send(BIG)
    assert not ours.is_idle
    while not drained:
        connection.hear()
        connection.turn()
    for _ in range(3):
        connection.turn()
    assert drained == [True]


def test_what_the_other_side_said_comes_before_its_end(connection: Connection) -> None:
    """Sending fails meanwhile, and says nothing."""
    ours = connection.ours()

    def line(data: bytes) -> None:
        connection.lines.append(data)
        ours.send(BIG)

    ours.receive(line, connection.ended)
    connection.say(b"one\ntwo\nhalf a li")
    connection.hang_up()
    ours.send(b"nobody hears this\n")
    assert (ours.is_open, ours.is_idle) == (True, False)
    run(connection.loop)
    assert (connection.lines, connection.ends) == ([b"one", b"two"], [CLOSED])
    ours.send(b"too late\n")


def test_the_other_side_dies_while_much_waits_for_it(connection: Connection) -> None:
    ours, drained = connection.ours(), list[None]()
    connection.receive(ours, lambda: drained.append(None))
    ours.send(BIG)
    connection.hang_up()
    run(connection.loop)
    assert (len(connection.ends), drained) == (1, [])


@pytest.mark.parametrize(("error", "ends"), [(BlockingIOError(), []), (OSError(5, "broken"), ["[Errno 5] broken"])])
def test_an_error_of_reading(error: OSError, ends: list[str], connection: Connection) -> None:
    def read() -> bytes:
        connection.loop.stop()
        raise error

    connection.receive(connection.ours(read=read))
    connection.say(b"x")
    run(connection.loop)
    assert connection.ends == ends


def test_where_no_descriptor_says_when_it_is_tried_again(connection: Connection) -> None:
    taken = list[bytes]()

    def write(data: bytearray) -> int:
        taken.append(bytes(data[:2]))
        if len(taken) == 2:
            raise BlockingIOError
        return len(taken[-1])

    ours = connection.ours(write=write, again_seconds=0.001)
    connection.receive(ours, connection.loop.stop)
    ours.send(b"abc\n")
    assert not ours.is_idle
    run(connection.loop)
    assert taken == [b"ab", b"c\n", b"c\n"] and ours.is_idle


def test_after_closing_nothing_is_tried_again() -> None:
    connection = Connection("pipes")

    def write(data: bytearray) -> int:
        raise BlockingIOError

    ours = connection.ours(write=write, again_seconds=0.001)
    ours.send(b"x\n")
    number = connection.files[1].fileno()
    ours.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
    # Somebody else opens something, which gets the number that has become free, and waits for that.
    (read, write_end), tried = os.pipe(), list[None]()
    if write_end != number:
        os.dup2(write_end, number)
        os.close(write_end)
    connection.loop.watch(number, WRITE, lambda: connection.loop.stop() if tried else None)
    connection.loop.later(0.01, lambda: tried.append(None))
    run(connection.loop)
    connection.loop.forget(number)
    os.close(read)
    os.close(number)
    connection.close()


# Closing within a callback


def test_after_closing_at_a_line_nothing_more_comes(connection: Connection) -> None:
    ours = connection.ours()

    def line(data: bytes) -> None:
        connection.lines.append(data)
        ours.close()
        ours.close()
        ours.send(b"too late\n")

    ours.receive(line, connection.ended)
    connection.say(b"one\ntwo\n")
    connection.hang_up()
    connection.turn()
    connection.turn()
    assert (connection.lines, connection.ends, ours.is_open) == ([b"one"], [], False)


def test_closing_at_the_end(connection: Connection) -> None:
    ours = connection.ours()

    def ended(reason: str) -> None:
        connection.ended(reason)
        assert not ours.is_open
        ours.close()
        connection.receive(ours)

    ours.receive(connection.lines.append, ended)
    connection.hang_up()
    run(connection.loop)
    connection.turn()
    assert connection.ends == [CLOSED]


def test_a_stream_that_has_ended_holds_nobody(connection: Connection) -> None:
    """The local cluster's supervisor collects no cycles: what is left of each client would stay."""

    class Owner:
        def __init__(self) -> None:
            self.stream = connection.ours()
            self.stream.receive(self.hear, self.hear, self.hear)

        def hear(self, *said: object) -> None:
            connection.loop.stop()

    owner = weakref.ref(Owner())
    connection.hang_up()
    gc.disable()
    try:
        run(connection.loop)
        assert owner() is None
    finally:
        gc.enable()


def test_both_ends_are_closed_with_the_stream(connection: Connection) -> None:
    ours = connection.ours()
    connection.receive(ours)
    ours.send(BIG)
    ours.close()
    while connection.hear():
        pass
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        connection.say(b"x")

"""The agent's own stdout and stderr: in order, whole, and never waited for."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from agent.machine.loop import Loop
from agent.machine.output_writer import HIGH_MARK, LOW_MARK, MOST_WAITING, Emitter
from tests.machine.waiting import run, wait_until

MIB = 1024 * 1024


class Reader:
    """The other side of a pipe: reads nothing until it is told to, then all up to the end, in a thread of its own."""

    def __init__(self) -> None:
        self.read, self.write = os.pipe()
        self._ends = [os.fdopen(fd, mode, buffering=0) for fd, mode in ((self.read, "rb"), (self.write, "wb"))]
        self._got = bytearray()
        self._thread = threading.Thread(target=self._work)

    def begin(self) -> None:
        self._thread.start()

    def all(self) -> bytes:
        """Close the writing side and wait for the rest."""
        self._ends[1].close()
        self._thread.join()
        return bytes(self._got)

    def close(self) -> None:
        """Whatever has happened: nobody is left waiting."""
        if self._thread.ident is not None:
            self.all()
        for end in self._ends:  # who writes to a pipe that nobody reads ends with EPIPE
            end.close()

    def _work(self) -> None:
        while data := os.read(self.read, 65536):
            self._got += data


@pytest.fixture
def reader() -> Iterator[Reader]:
    with closing(Reader()) as reader:
        yield reader


def emitter_to(reader: Reader, loop: Loop | None = None) -> Emitter:
    """One whose stdout and stderr are the same pipe, as in a container's log."""
    return Emitter(loop or Loop(), reader.write, reader.write, unread_seconds=60)


def test_both_streams_are_written_in_order(reader: Reader) -> None:
    emitter = emitter_to(reader)
    pieces = [b"%d " % number * (1 + number % 3000) for number in range(2000)]
    reader.begin()
    for number, piece in enumerate(pieces):
        emitter.emit(1 + number % 2, piece)
        emitter.emit(1, b"")
    assert emitter.flush(60) == 0
    assert reader.all() == b"".join(pieces)
    assert (emitter.behind, emitter.dropped) == (0, 0)


def test_nobody_reads_and_nobody_waits(reader: Reader) -> None:
    emitter = emitter_to(reader)
    for _ in range(HIGH_MARK // 1024):
        emitter.emit(1, b"x" * 1024)
    far_behind = [emitter.is_far_behind]
    emitter.emit(2, b"y" * MIB)
    assert [*far_behind, emitter.is_far_behind] == [False, True]
    assert HIGH_MARK < emitter.flush(0.01) <= HIGH_MARK + MIB
    reader.begin()
    assert emitter.flush(60) == 0
    assert reader.all() == b"x" * HIGH_MARK + b"y" * MIB


def test_small_pieces_are_joined(reader: Reader) -> None:
    """A program that writes single bytes while nobody reads must not cost the agent a hundred times their memory."""
    emitter = emitter_to(reader)
    emitter.emit(1, b"x" * 1_000_000)  # more than the pipe takes
    before = sys.getallocatedblocks()
    for _ in range(100_000):
        emitter.emit(1, b"x")
    assert sys.getallocatedblocks() - before < 1000
    reader.begin()
    assert emitter.flush(60) == 0
    assert len(reader.all()) == 1_100_000


def test_relief_is_told_once_when_the_backlog_is_small(reader: Reader) -> None:
    loop, told = Loop(), list[int]()
    emitter = emitter_to(reader, loop)

    def relieved() -> None:
        told.append(emitter.behind)
        loop.post(loop.stop)

    emitter.emit(1, b"x" * (HIGH_MARK + 1))
    emitter.emit(2, b"y" * LOW_MARK)
    emitter.on_relief(relieved)
    loop.later(0, reader.begin)
    run(loop)
    assert emitter.flush(60) == 0
    assert len(told) == 1
    assert told[0] < LOW_MARK


def test_relief_is_told_at_once_when_nothing_waits(reader: Reader) -> None:
    loop = Loop()
    emitter_to(reader, loop).on_relief(loop.stop)
    run(loop)


def test_for_a_reader_that_takes_nothing_nobody_waits_long(reader: Reader) -> None:
    loop = Loop()
    emitter = Emitter(loop, reader.write, reader.write, unread_seconds=0.1)
    for _ in range(2 * MOST_WAITING // MIB):
        emitter.emit(1, bytes(MIB))
    emitter.on_relief(loop.stop)
    run(loop)
    wait_until(lambda: not emitter.is_far_behind)  # the first bytes may go into the pipe only now
    assert HIGH_MARK < emitter.behind <= MOST_WAITING
    assert emitter.behind + emitter.dropped == 2 * MOST_WAITING


def test_what_is_too_much_is_dropped_in_one_place_and_told(reader: Reader) -> None:
    emitter = emitter_to(reader)
    emitter.emit(1, b"x" * (MOST_WAITING - MIB))
    emitter.emit(1, b"a" * (MIB + 1))
    emitter.emit(2, b"b")
    assert emitter.dropped == MIB + 2
    reader.begin()
    assert emitter.flush(60) == 0
    emitter.emit(1, b"after\n")
    note = f"a4-agent: {MIB + 2} bytes of output were dropped: nothing was reading\n".encode()
    assert emitter.flush(60) == 0
    assert reader.all() == b"x" * (MOST_WAITING - MIB) + note + b"after\n"
    assert emitter.dropped == MIB + 2


def test_one_piece_that_is_too_much_stops_nothing(reader: Reader) -> None:
    emitter = emitter_to(reader)
    reader.begin()
    emitter.emit(1, bytes(MOST_WAITING + 1))
    emitter.emit(1, b"after\n")
    assert emitter.flush(60) == 0
    assert reader.all().endswith(b"nothing was reading\nafter\n")


def test_a_pipe_that_does_not_block_gets_everything(reader: Reader) -> None:
    os.set_blocking(reader.write, False)
    emitter = emitter_to(reader)
    emitter.emit(1, b"x" * MIB)
    assert emitter.flush(0.01) > 0
    reader.begin()
    assert emitter.flush(60) == 0
    assert reader.all() == b"x" * MIB


def test_a_full_disk_and_a_reader_that_has_gone_cost_their_stream_only(reader: Reader) -> None:
    gone_read, gone = os.pipe()
    os.close(gone_read)
    full = os.open("/dev/full", os.O_WRONLY)
    reader.begin()
    for bad in (gone, full):
        emitter = Emitter(Loop(), bad, reader.write)
        for _ in range(3):
            emitter.emit(1, b"x" * MIB)
            emitter.emit(2, b"said\n")
        assert emitter.flush(60) == 0
        os.close(bad)
    assert reader.all() == b"said\n" * 6


HOST = """
import sys
from agent.machine.host import Host
from agent.machine.loop import Loop
host = Host(Loop())
for stream in (1, 2):
    host.emit(stream, b'x' * 100_000)
left = host.flush_output(float(sys.argv[1]))
sys.exit(4 if left else 3)
"""


def test_a_host_writes_to_its_own_stdout_and_stderr_and_a_reader_that_has_gone_ends_nothing() -> None:
    argv = [sys.executable, "-c", HOST, "60"]
    done = subprocess.run(argv, capture_output=True)
    assert (done.returncode, len(done.stdout), len(done.stderr)) == (3, 100_000, 100_000)
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(argv, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.returncode, len(done.stderr)) == (3, 100_000)


def test_an_end_does_not_wait_for_a_reader() -> None:
    argv = [sys.executable, "-c", HOST, "0.01"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_until(lambda: process.poll() is not None)  # nobody reads
    assert process.returncode == 4

"""Children: all they write, then how they ended."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from agent.launch import Launch
from agent.machine import process
from agent.machine.asking import Late
from agent.machine.loop import Loop
from agent.machine.output_writer import HIGH_MARK, MOST_WAITING, Emitter
from agent.machine.process import PIPE_BYTES, READ_BYTES
from tests.machine.waiting import run, wait_until

ENV = {"PATH": os.environ["PATH"]}


def start(argv: list[str], kill: int = 0) -> tuple[int, bytes, bytes]:
    """Run to the end: status, stdout, stderr. With `kill`, the child gets that signal after its first output."""
    loop, said, statuses = Loop(), {1: b"", 2: b""}, list[int]()

    def take(stream: int, data: bytes) -> None:
        assert not statuses, "output after the end"
        said[stream] += data
        if kill:
            child.signal(kill)

    def ended(status: int) -> None:
        statuses.append(status)
        loop.stop()

    child = process.RunningChild(loop, Emitter(loop), Launch(argv, ENV), ended, take, emitted=True)
    run(loop)
    child.signal(signal.SIGTERM)  # it is gone: no error
    assert len(statuses) == 1
    return statuses[0], said[1], said[2]


@pytest.mark.parametrize("status", [0, 1, 7, 255])
def test_the_status_of_a_child(status: int) -> None:
    assert start(["sh", "-c", f"exit {status}"])[0] == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_a_child_that_a_signal_ends(number: int) -> None:
    assert start(["sh", "-c", "echo up; exec sleep 1000"], kill=number)[0] == -number


def test_all_output_comes_before_the_end() -> None:
    code = "import os; [os.write(f, bytes([65 + f]) * 1000) for i in range(3000) for f in (1, 2)]"
    assert start([sys.executable, "-c", code]) == (0, b"B" * 3_000_000, b"C" * 3_000_000)


def test_a_grandchild_that_keeps_the_pipe_does_not_hold_the_end(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    assert start(["sh", "-c", f"sleep 1000 & echo $! > {pid}; echo said; exit 3"]) == (3, b"said\n", b"")
    os.kill(int(pid.read_text()), signal.SIGKILL)


def test_a_child_sees_its_environment_and_directory_and_no_stdin() -> None:
    loop, said = Loop(), list[bytes]()
    argv = [sys.executable, "-c", "import os, sys; print(os.environ['A'], os.getcwd(), sys.stdin.read() == '')"]
    launch = Launch(argv, {**ENV, "A": "b"}, "/usr")
    process.RunningChild(loop, None, launch, lambda status: loop.stop(), lambda stream, data: said.append(data))
    run(loop)
    assert b"".join(said) == b"b /usr True\n"


def test_a_child_is_in_a_session_of_its_own_and_signals_reach_its_group() -> None:
    loop, statuses = Loop(), list[int]()

    def take(stream: int, data: bytes) -> None:
        session, inner = map(int, data.split())
        assert session == child.pid == os.getsid(inner)
        child.signal(signal.SIGKILL)

    def ended(status: int) -> None:
        statuses.append(status)
        loop.stop()

    script = "sleep 1000 & echo $$ $!; wait"
    child = process.RunningChild(loop, Emitter(loop), Launch(["sh", "-c", script], ENV), ended, take, emitted=True)
    run(loop)
    assert statuses == [-signal.SIGKILL]


@pytest.mark.parametrize("argv", [["/no/such/program"], ["/etc"]])
def test_what_cannot_be_started(argv: list[str]) -> None:
    with pytest.raises(OSError):
        loop = Loop()
        process.RunningChild(
            loop, Emitter(loop), Launch(argv, ENV), lambda status: None, lambda stream, data: None, emitted=True
        )


def test_many_children_leave_no_descriptor_open() -> None:
    def one() -> None:
        assert start(["true"])[0] == 0

    gc.collect()  # what other tests have left must not go while we count
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        one()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 3 * 5  # a Loop has three, and lives as long as its process


def test_programs_are_found_in_sbin_too(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    assert process.find_program("program", str(tmp_path)) is None
    program.chmod(0o755)
    assert process.find_program("program", f"/none:{tmp_path}") == str(program)
    assert process.find_program("sshd", "/none") == "/usr/sbin/sshd"


# A stdout of the agent that nobody reads

BACKLOG = HIGH_MARK + 1_048_576


@pytest.fixture
def stuck() -> Iterator[tuple[Loop, Emitter, int]]:
    """A loop, an emitter that is far behind, and the descriptor from which its output can be read."""
    loop, (read, write) = Loop(), os.pipe()
    emitter = Emitter(loop, write, write, unread_seconds=60)
    for _ in range(0, BACKLOG, 65536):
        emitter.emit(1, bytes(65536))
    yield loop, emitter, read
    os.close(read)  # whatever happened: what is left goes nowhere
    emitter.flush(60)
    os.close(write)


@pytest.mark.parametrize("heir", [False, True])
def test_a_child_ends_though_nobody_ever_reads(heir: bool, run_id: str) -> None:
    """As in a pod behind a terminal in which somebody has pressed Ctrl-S: the run goes on, and memory has a bound."""
    size, taken, statuses = 2 * MOST_WAITING, list[int](), list[int]()
    loop, (read, write) = Loop(), os.pipe()
    emitter = Emitter(loop, write, write, unread_seconds=0.1)

    def take(stream: int, data: bytes) -> None:
        taken.append(len(data))
        emitter.emit(stream, data)

    def ended(status: int) -> None:
        statuses.append(status)
        loop.stop()

    script = f"{'sleep 1000 &' if heir else ''} head -c {size} /dev/zero; exit 7"
    process.RunningChild(
        loop, emitter, Launch(["sh", "-c", script], ENV | {"A4_RUN": run_id}), ended, take, emitted=True
    )
    run(loop)
    os.close(read)
    emitter.flush(60)
    os.close(write)
    assert (statuses, sum(taken)) == ([7], size)
    assert emitter.dropped >= size - MOST_WAITING - (1 << 20)


def read_away(read: int, size: int) -> None:
    while size > 0:
        size -= len(os.read(read, min(size, 65536)))


def test_a_child_waits_for_who_reads_our_output(stuck: tuple[Loop, Emitter, int]) -> None:
    loop, emitter, read = stuck
    size, far_behind, backlogs, statuses = 64_000_000, threading.Event(), list[int](), list[int]()

    def read_slowly() -> None:
        read_away(read, BACKLOG - 300_000)  # this is a relief
        far_behind.wait(60)
        read_away(read, 300_000 + size)

    def take(stream: int, data: bytes) -> None:
        emitter.emit(stream, data)
        backlogs.append(emitter.behind)
        if emitter.is_far_behind:
            far_behind.set()

    def ended(status: int) -> None:
        statuses.append(status)
        loop.stop()

    argv = ["sh", "-c", f"head -c {size // 2} /dev/zero & head -c {size // 2} /dev/zero >&2; wait"]
    process.RunningChild(loop, emitter, Launch(argv, ENV), ended, take, emitted=True)
    reader = threading.Thread(target=read_slowly)
    reader.start()
    run(loop)
    reader.join()
    assert statuses == [0]
    assert emitter.flush(60) == 0
    # One piece more, and all that the two pipes hold when the child has ended, which is read whatever the backlog.
    assert HIGH_MARK < max(backlogs) <= HIGH_MARK + READ_BYTES + 2 * (PIPE_BYTES + READ_BYTES)


def open_fifo(path: Path) -> None:
    """Let go who waits in opening it."""
    os.close(os.open(path, os.O_WRONLY))


LAST_WORDS = """
import fcntl, os
for fd in (1, 2):
    fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, 1 << 20)
    os.write(fd, bytes([65 + fd]) * (1 << 20))
os._exit(7)
"""


@pytest.mark.parametrize("heir", [False, True])
def test_a_child_that_ends_while_nobody_reads_has_said_all(
    heir: bool, stuck: tuple[Loop, Emitter, int], run_id: str
) -> None:
    """Its pipes are full to the brim and, with an heir, stay open: this one is not given up while we do not read."""
    loop, emitter, read = stuck
    said, all_of_it, statuses = {1: b"", 2: b""}, {1: b"B" * (1 << 20), 2: b"C" * (1 << 20)}, list[int]()

    def take(stream: int, data: bytes) -> None:
        said[stream] += data
        if heir and said == all_of_it:
            loop.post(lambda: read_away(read, BACKLOG - 300_000))

    def ended(status: int) -> None:
        statuses.append(status)
        loop.stop()

    script = f'{"sleep 1000 &" if heir else ""} exec "$0" -c "$1"'
    launch = Launch(["sh", "-c", script, sys.executable, LAST_WORDS], ENV | {"A4_RUN": run_id})
    process.RunningChild(loop, emitter, launch, ended, take, emitted=True)
    run(loop)
    assert (statuses, said) == ([7], all_of_it)
    assert emitter.is_far_behind is not heir


def test_heirs_of_a_child_are_not_given_up_while_we_do_not_read(
    stuck: tuple[Loop, Emitter, int], run_id: str, tmp_path: Path
) -> None:
    loop, emitter, read = stuck
    spoke, leave, go, done = (tmp_path / name for name in ("spoke", "leave", "go", "done"))
    said, statuses = list[bytes](), list[int]()
    os.mkfifo(leave)
    os.mkfifo(go)

    def look() -> None:
        # With bytes in the pipe, the loop's next turn finds that they must wait. Then the child ends.
        if spoke.exists():
            loop.post(partial(open_fifo, leave))
        else:
            loop.later(0.005, look)

    def take(stream: int, data: bytes) -> None:
        said.append(data)
        if len(said) == 1:
            loop.later(2 * process.LAST_OUTPUT_SECONDS, late)

    def late() -> None:
        assert (said, statuses) == ([b"child\n"], [])
        open_fifo(go)
        wait_until(done.exists)
        read_away(read, BACKLOG - 300_000)

    def ended(status: int) -> None:
        statuses.append(status)
        loop.stop()

    heir = f"(cat {go}; echo heir; touch {done}; exec sleep 1000)"
    script = f"{heir} & echo child; touch {spoke}; cat {leave}; exit 3"
    process.RunningChild(
        loop, emitter, Launch(["sh", "-c", script], ENV | {"A4_RUN": run_id}), ended, take, emitted=True
    )
    look()
    run(loop)
    assert (statuses, said) == ([3], [b"child\n", b"heir\n"])


@pytest.mark.parametrize(("script", "status"), [("exec yes", -signal.SIGTERM), ("yes & yes >&2 & exit 5", 5)])
def test_who_never_stops_printing_holds_up_nothing(script: str, status: int, run_id: str) -> None:
    loop, statuses = Loop(), list[int]()

    def ended(status: int) -> None:
        statuses.append(status)
        loop.stop()

    launch = Launch(["sh", "-c", script], ENV | {"A4_RUN": run_id})
    child = process.RunningChild(loop, Emitter(loop), launch, ended, lambda stream, data: None, emitted=True)
    if status < 0:
        loop.later(0.05, lambda: child.signal(signal.SIGTERM))
    run(loop)
    assert statuses == [status]


def test_a_group_that_outlives_its_first_process_is_waited_for_and_heard(run_id: str) -> None:
    loop, ends, printed = Loop(), list[tuple[int, bytes]](), list[bytes]()

    def ended(status: int) -> None:
        ends.append((status, b"".join(printed)))
        loop.stop()

    # The shell has no trap; its child saves its state and says so, longer than a pipe is held open for heirs otherwise.
    child_script = "trap 'sleep 1; echo saved; exit' TERM; echo ready; while :; do sleep 0.02; done"
    launch = Launch(["sh", "-c", 'sh -c "$0"; true', child_script], ENV | {"A4_RUN": run_id})

    def heard(stream: int, data: bytes) -> None:
        if stream == 1:
            printed.append(data)
        if data == b"ready\n":
            child.await_group()
            child.signal(signal.SIGTERM)

    child = process.RunningChild(loop, None, launch, ended, heard)
    run(loop)
    assert ends == [(-signal.SIGTERM, b"ready\nsaved\n")]


def test_a_process_that_nothing_ends_is_named() -> None:
    assert str(Late(2.0, "", 17)) == "did not answer within 2 s; its process 17 hangs in the kernel (state D) and stays"
    assert str(Late(2.0, "")) == "did not answer within 2 s"

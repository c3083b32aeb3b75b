"""Children: all they write, then how they ended."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from agent.launch import Launch
from agent.machine import process
from agent.machine.loop import Loop
from agent.machine.output_writer import HIGH_MARK, MOST_WAITING, Emitter
from agent.machine.process import PIPE_BYTES, READ_BYTES
from tests.machine.waiting import run, wait_until

ENV = {"PATH": os.environ["PATH"]}


class Child:
    """A child, what it has said, and how it ended: then its loop stops. `heard` is called with each piece."""

    def __init__(
        self,
        *argv: str,
        env: Mapping[str, str] = ENV,
        cwd: str = "/",
        loop: Loop | None = None,
        emitter: Emitter | None = None,
        heard: Callable[[int, bytes], None] = lambda stream, data: None,
    ) -> None:
        self.loop = loop or Loop()
        self.said = {1: bytearray(), 2: bytearray()}
        self.statuses: list[int] = []
        self._heard = heard
        self.running = process.RunningChild(
            self.loop, emitter or Emitter(self.loop), Launch(argv, env, cwd), self._ended, self._take, emitted=True
        )

    def _take(self, stream: int, data: bytes) -> None:
        assert not self.statuses, "output after the end"
        self.said[stream] += data
        self._heard(stream, data)

    def _ended(self, status: int) -> None:
        self.statuses.append(status)
        self.loop.stop()

    def end(self) -> tuple[int, bytes, bytes]:
        """Wait for it: its status and all that it has said."""
        run(self.loop)
        (status,) = self.statuses
        return status, bytes(self.said[1]), bytes(self.said[2])


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("exit 255", 255), ("kill -KILL $$", -signal.SIGKILL), ("kill -SEGV $$", -signal.SIGSEGV)],
)
def test_how_a_child_ended(script: str, status: int) -> None:
    child = Child("sh", "-c", script)
    assert child.end()[0] == status
    child.running.signal(signal.SIGTERM)  # it is gone: no error


def test_all_output_comes_before_the_end() -> None:
    code = "import os; [os.write(f, bytes([65 + f]) * 1000) for i in range(3000) for f in (1, 2)]"
    assert Child(sys.executable, "-c", code).end() == (0, b"B" * 3_000_000, b"C" * 3_000_000)


def test_a_grandchild_that_keeps_the_pipe_does_not_hold_the_end(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    child = Child("sh", "-c", f"sleep 1000 & echo $! > {pid}; echo said; exit 3")
    assert child.end() == (3, b"said\n", b"")
    os.kill(int(pid.read_text()), signal.SIGKILL)


def test_a_child_sees_its_environment_and_directory_and_no_stdin() -> None:
    code = "import os, sys; print(os.environ['A'], os.getcwd(), sys.stdin.read() == '')"
    child = Child(sys.executable, "-c", code, env={**ENV, "A": "b"}, cwd="/usr")
    assert child.end()[1] == b"b /usr True\n"


def test_a_child_is_in_a_session_of_its_own_and_signals_reach_its_group() -> None:
    def heard(stream: int, data: bytes) -> None:
        session, inner = map(int, data.split())
        assert session == child.running.pid == os.getsid(inner)
        child.running.signal(signal.SIGKILL)

    child = Child("sh", "-c", "sleep 1000 & echo $$ $!; wait", heard=heard)
    assert child.end()[0] == -signal.SIGKILL


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


@pytest.fixture
def marked(run_id: str) -> Mapping[str, str]:
    """The environment of children whose heirs end with the test."""
    return {**ENV, "A4_RUN": run_id}


@pytest.mark.parametrize("heir", [False, True])
def test_a_child_ends_though_nobody_ever_reads(heir: bool, marked: Mapping[str, str]) -> None:
    """As in a pod behind a terminal in which somebody has pressed Ctrl-S: the run goes on, and memory has a bound."""
    size, loop, (read, write) = 2 * MOST_WAITING, Loop(), os.pipe()
    emitter = Emitter(loop, write, write, unread_seconds=0.1)
    script = f"{'sleep 1000 &' if heir else ''} head -c {size} /dev/zero; exit 7"
    status, out, _ = Child("sh", "-c", script, env=marked, loop=loop, emitter=emitter, heard=emitter.emit).end()
    os.close(read)
    emitter.flush(60)
    os.close(write)
    assert (status, len(out)) == (7, size)
    assert emitter.dropped >= size - MOST_WAITING - (1 << 20)


def read_away(read: int, size: int) -> None:
    while size > 0:
        size -= len(os.read(read, min(size, 65536)))


def test_a_child_waits_for_who_reads_our_output(stuck: tuple[Loop, Emitter, int]) -> None:
    loop, emitter, read = stuck
    size, far_behind, backlogs = 64_000_000, threading.Event(), list[int]()

    def read_slowly() -> None:
        read_away(read, BACKLOG - 300_000)  # this is a relief
        far_behind.wait(60)
        read_away(read, 300_000 + size)

    def heard(stream: int, data: bytes) -> None:
        emitter.emit(stream, data)
        backlogs.append(emitter.behind)
        if emitter.is_far_behind:
            loop.later(0.01, look)

    def look() -> None:
        if child.running.is_paused:
            far_behind.set()
        else:
            loop.later(0.01, look)

    script = f"head -c {size // 2} /dev/zero & head -c {size // 2} /dev/zero >&2; wait"
    child = Child("sh", "-c", script, loop=loop, emitter=emitter, heard=heard)
    reader = threading.Thread(target=read_slowly)
    reader.start()
    status = child.end()[0]
    reader.join()
    assert (status, emitter.flush(60), child.running.is_paused) == (0, 0, False)
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
    heir: bool, stuck: tuple[Loop, Emitter, int], marked: Mapping[str, str]
) -> None:
    """Its pipes are full to the brim and, with an heir, stay open: this one is not given up while we do not read."""
    loop, emitter, read = stuck
    all_of_it = {1: b"B" * (1 << 20), 2: b"C" * (1 << 20)}

    def heard(stream: int, data: bytes) -> None:
        if heir and child.said == all_of_it:
            loop.post(lambda: read_away(read, BACKLOG - 300_000))

    argv = ["sh", "-c", f'{"sleep 1000 &" if heir else ""} exec "$0" -c "$1"', sys.executable, LAST_WORDS]
    child = Child(*argv, env=marked, loop=loop, emitter=emitter, heard=heard)
    assert child.end() == (7, *all_of_it.values())
    assert emitter.is_far_behind is not heir


def test_heirs_of_a_child_are_not_given_up_while_we_do_not_read(
    stuck: tuple[Loop, Emitter, int], marked: Mapping[str, str], tmp_path: Path
) -> None:
    loop, emitter, read = stuck
    spoke, leave, go, done = (tmp_path / name for name in ("spoke", "leave", "go", "done"))
    os.mkfifo(leave)
    os.mkfifo(go)

    def look() -> None:
        # With bytes in the pipe, the loop's next turn finds that they must wait. Then the child ends.
        if spoke.exists():
            loop.post(partial(open_fifo, leave))
        else:
            loop.later(0.005, look)

    def heard(stream: int, data: bytes) -> None:
        if data == b"child\n":
            loop.later(2 * process.LAST_OUTPUT_SECONDS, late)

    def late() -> None:
        assert child.said[1] == b"child\n" and not child.statuses
        open_fifo(go)
        wait_until(done.exists)
        read_away(read, BACKLOG - 300_000)

    heir = f"(cat {go}; echo heir; touch {done}; exec sleep 1000)"
    script = f"{heir} & echo child; touch {spoke}; cat {leave}; exit 3"
    child = Child("sh", "-c", script, env=marked, loop=loop, emitter=emitter, heard=heard)
    look()
    assert child.end() == (3, b"child\nheir\n", b"")


@pytest.mark.parametrize(("script", "status"), [("exec yes", -signal.SIGTERM), ("yes & yes >&2 & exit 5", 5)])
def test_who_never_stops_printing_holds_up_nothing(script: str, status: int, marked: Mapping[str, str]) -> None:
    child = Child("sh", "-c", script, env=marked)
    if status < 0:
        child.loop.later(0.05, lambda: child.running.signal(signal.SIGTERM))
    assert child.end()[0] == status


def test_a_group_that_outlives_its_first_process_is_waited_for_and_heard(marked: Mapping[str, str]) -> None:
    # The shell has no trap; its child saves its state and says so, longer than a pipe is held open for heirs otherwise.
    saving = "trap 'sleep 1; echo saved; exit' TERM; echo ready; while :; do sleep 0.02; done"

    def heard(stream: int, data: bytes) -> None:
        if data == b"ready\n":
            child.running.await_group()
            child.running.signal(signal.SIGTERM)

    child = Child("sh", "-c", 'sh -c "$0" 2>/dev/null; true', saving, env=marked, heard=heard)
    assert child.end() == (-signal.SIGTERM, b"ready\nsaved\n", b"")

"""Programs whose output passes by."""

from __future__ import annotations

import gc
import os
import select
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent.launch import Launch
from agent.machine.launching import Passing, Piped
from tests.machine.waiting import wait_until


def run(*argv: str) -> tuple[int, list[str]]:
    lines: list[str] = []
    passing = Passing({1: lines.append, 2: lines.append})
    status = Piped(Launch(argv, os.environ), passing.take).wait()
    passing.close()
    return status, lines


def nothing(stream: int, data: bytes) -> None:
    """Nobody looks at it."""


def test_lines_of_both_streams_are_seen_and_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    status, lines = run("sh", "-c", "echo one; echo two >&2; printf 'three\\rfour'; exit 3")
    assert status == 3 and sorted(lines) == ["four", "one", "three", "two"]
    assert capfd.readouterr() == ("one\nthree\rfour", "two\n")


def test_what_holds_the_output_of_a_program_that_has_ended_is_not_waited_for() -> None:
    status, lines = run("sh", "-c", "sleep 600 & echo $!")
    os.kill(int(lines[0]), 9)
    assert status == 0


def test_a_program_that_says_nothing_has_ticks() -> None:
    ticks: list[None] = []

    def tick() -> float:
        ticks.append(None)
        if len(ticks) == 3:
            running.kill()
        return 0.01

    running = Piped(Launch(["sleep", "600"], os.environ), nothing, own_session=False)
    assert running.wait(tick) == -9


@pytest.mark.parametrize("own_session", [True, False])
def test_what_interrupts_the_wait_ends_the_program(own_session: bool) -> None:
    def tick() -> float:
        raise KeyError

    running = Piped(Launch(["sleep", "600"], os.environ), nothing, own_session=own_session)
    ended = os.pidfd_open(running.child.pid)
    with pytest.raises(KeyError):
        running.wait(tick)
    assert select.select([ended], [], [], 0)[0]
    os.close(ended)


def test_a_program_leaves_no_descriptor_open() -> None:
    gc.collect()  # what other tests have left must not go while we count
    before = os.listdir("/proc/self/fd")
    assert run("true")[0] == 0
    with pytest.raises(FileNotFoundError):
        run("/nothing")
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_kill_ends_all_that_it_has_started(tmp_path: Path) -> None:
    """Also what is in a session of its own, as processes of torchrun are."""
    script = 'for i in 1 2 3; do setsid sh -c "sleep 600; true" & done; wait'
    running = Piped(Launch(["sh", "-c", script], {**os.environ, "A4_TEST": str(tmp_path)}), nothing)
    ended = threading.Thread(target=running.wait)
    ended.start()
    wait_until(lambda: len(processes(str(tmp_path))) == 7)
    running.kill()
    ended.join(60)
    wait_until(lambda: not processes(str(tmp_path)))


def processes(mark: str) -> list[str]:
    found = subprocess.run(["grep", "-lz", f"^A4_TEST={mark}", *map(str, Path("/proc").glob("[0-9]*/environ"))],
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # fmt: skip
    return found.stdout.split()


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        Piped(Launch(["/nothing"], {}), nothing)
    with pytest.raises(FileNotFoundError):
        Piped(Launch([sys.executable], {}, "/nowhere"), nothing)

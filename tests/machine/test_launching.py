"""Programs that are started and waited for, while their output passes by."""

from __future__ import annotations

import gc
import os
import select
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent.errors import MissingProgram
from agent.launch import Launch
from agent.machine.launching import KEPT_BYTES, Passing, Piped, run_launch
from agent.machine.run_processes import marked
from tests.machine.waiting import DEADLINE_SECONDS, wait_until

ROOT = Path(__file__).resolve().parents[2]
ENV = {"PATH": os.environ["PATH"], "WHO": "us"}


def shell(script: str) -> Launch:
    return Launch(["sh", "-c", script], ENV, "/")


def test_it_passes_on_what_is_printed_and_returns_its_end(capfd: pytest.CaptureFixture[str]) -> None:
    status, output = run_launch(shell("echo $WHO at $PWD; echo no >&2; exit 3"))
    assert status == 3
    assert sorted(output.splitlines()) == ["no", "us at /"]
    assert capfd.readouterr() == ("us at /\n", "no\n")


def test_only_the_end_of_much_output_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    wanted = "x" * 3 * KEPT_BYTES + "end"
    end = run_launch(Launch([sys.executable, "-c", f"print('x' * {3 * KEPT_BYTES} + 'end', end='')"], ENV))
    assert end.output == wanted[-KEPT_BYTES:]
    assert capfd.readouterr().out == wanted


@pytest.mark.parametrize("launch", [Launch(["/no/such/program"], ENV), Launch(["true"], ENV, "/no/such/directory")])
def test_what_cannot_be_started_is_said(launch: Launch) -> None:
    with pytest.raises(MissingProgram, match="cannot be started in"):
        run_launch(launch)


SCRIPT = """
from agent.launch import Launch
from agent.machine.launching import run_launch
shell = "trap 'exit 1' TERM; sleep 600 & echo $!; while :; do echo more; done"
run_launch(Launch(["sh", "-c", shell], {"PATH": "/bin:/usr/bin"}))
"""


def test_without_a_reader_it_is_ended_with_its_group() -> None:
    with subprocess.Popen([sys.executable, "-c", SCRIPT], cwd=ROOT, stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        child = os.pidfd_open(int(process.stdout.readline()))
        process.stdout.close()
        assert "BrokenPipeError" in process.stderr.read()
        assert select.select([child], [], [], DEADLINE_SECONDS)[0]
        os.close(child)


# Whose output is looked at


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
        raise KeyboardInterrupt

    running = Piped(Launch(["sleep", "600"], os.environ), nothing, own_session=own_session)
    ended = os.pidfd_open(running.child.pid)
    with pytest.raises(KeyboardInterrupt):
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


def test_kill_ends_all_that_it_has_started(run_id: str) -> None:
    """Also what is in a session of its own, as processes of torchrun are."""
    script = 'for i in 1 2 3; do setsid sh -c "sleep 600; true" & done; wait'
    running = Piped(Launch(["sh", "-c", script], {**os.environ, "A4_RUN": run_id}), nothing)
    ended = threading.Thread(target=running.wait)
    ended.start()
    wait_until(lambda: len(marked(run_id).pids) == 7)
    running.kill()
    ended.join(60)
    wait_until(lambda: not marked(run_id).pids)

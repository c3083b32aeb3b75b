"""A process that a script starts and waits for."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.errors import MissingProgram
from agent.launch import Launch
from agent.machine.launching import KEPT_BYTES, run_launch

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 150.0
ENV = {"PATH": os.environ["PATH"], "WHO": "us"}


def shell(script: str) -> Launch:
    return Launch(["sh", "-c", script], ENV, "/")


def test_it_passes_on_what_is_printed_and_returns_its_end(capfd: pytest.CaptureFixture[str]) -> None:
    status, output = run_launch(shell("echo $WHO at $PWD; echo no >&2; exit 3"))
    assert status == 3
    assert sorted(output.splitlines()) == ["no", "us at /"]
    assert capfd.readouterr() == ("us at /\n", "no\n")


def test_a_signal_is_told_from_a_code() -> None:
    assert run_launch(shell("kill -KILL $$")).status == -signal.SIGKILL


def test_only_the_end_of_much_output_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    wanted = "x" * 3 * KEPT_BYTES + "end"
    end = run_launch(Launch([sys.executable, "-c", f"print('x' * {3 * KEPT_BYTES} + 'end', end='')"], ENV))
    assert end.output == wanted[-KEPT_BYTES:]
    assert capfd.readouterr().out == wanted


def test_an_orphan_that_holds_the_pipes_is_not_waited_for() -> None:
    end = run_launch(shell("sleep 600 & echo $!"))
    os.kill(int(end.output), signal.SIGKILL)  # it lives: nobody has looked for it
    assert end.status == 0


@pytest.mark.parametrize("launch", [Launch(["/no/such/program"], ENV), Launch(["true"], ENV, "/no/such/directory")])
def test_what_cannot_be_started_is_said(launch: Launch) -> None:
    with pytest.raises(MissingProgram, match="cannot be started in"):
        run_launch(launch)


SCRIPT = """
from agent.launch import Launch
from agent.machine.launching import run_launch
run_launch(Launch(["sh", "-c", "trap 'echo told; exit 1' TERM; sleep 600 & echo $!; wait"], {"PATH": "/bin:/usr/bin"}))
"""


def ends(child: int) -> bool:
    """Whether the process of this descriptor does."""
    try:
        return bool(select.select([child], [], [], SECONDS)[0])
    finally:
        os.close(child)


def test_an_interruption_ends_it_with_its_group() -> None:
    with subprocess.Popen([sys.executable, "-c", SCRIPT], cwd=ROOT, stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout is not None
        child = os.pidfd_open(int(process.stdout.readline()))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=SECONDS)
        assert "KeyboardInterrupt" in said
        assert ends(child)


def test_without_a_reader_it_is_ended() -> None:
    script = SCRIPT.replace("wait", "while :; do echo more; done")
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        child = os.pidfd_open(int(process.stdout.readline()))
        process.stdout.close()
        assert "BrokenPipeError" in process.stderr.read()
        assert ends(child)

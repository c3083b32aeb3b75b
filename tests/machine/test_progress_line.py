"""The last line of a terminal: drawn, taken away before what is printed, and gone in the end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.terminal import PATIENCE, Terminal, screen

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
from agent.machine.progress_line import ProgressLine
from agent.output import write_all

with ProgressLine(lambda: "going on: " + "x" * 100), open(int(sys.argv[1])) as told:
    for line in told:
        write_all(1, {"open\\n": b"no end", "empty\\n": b""}.get(line, line.encode()))
write_all(1, b"over\\n")
"""
TERM = {"TERM": "xterm"}
LINE = "\rgoing on: "


@contextmanager
def program(terminal: Terminal, env: dict[str, str], **streams: int) -> Iterator[tuple[IO[str], subprocess.Popen[str]]]:
    """It runs on the terminal, and prints what it is told to."""
    read, write = os.pipe()
    words = [*terminal.through, sys.executable, "-c", PROGRAM, str(read)]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **env}
    running = subprocess.Popen(words, env=env, pass_fds=[read], text=True, **{**terminal.streams, **streams})
    os.close(read)
    with os.fdopen(write, "w", buffering=1) as told, running:
        yield told, running


def test_what_is_printed_stands_above_it_and_nothing_is_left() -> None:
    with Terminal(columns=30) as terminal, program(terminal, TERM) as (told, running):
        terminal.until(LINE + "x" * 19 + "\x1b[K")
        told.write("one\n")
        terminal.until("\r\x1b[Kone\r\n" + LINE)
        told.write("open\n")
        terminal.until("\r\x1b[Kno end")
        told.write(", its end\n")
        terminal.until(", its end\r\n")
        terminal.until(LINE)
        told.write("empty\n")
        terminal.until("\r\x1b[K")
        terminal.until(LINE)
        terminal.resize(1, 12)
        terminal.until(LINE + "x\x1b[K")
        terminal.resize(24, 1)
        terminal.until("\r\x1b[K")
        terminal.resize(24, 80)
        terminal.until(LINE + "x" * 69 + "\x1b[K")
        told.close()
        terminal.until("over\r\n")
        assert running.wait(PATIENCE) == 0


def test_the_screen_in_the_end() -> None:
    with Terminal() as terminal, program(terminal, TERM) as (told, running):
        terminal.until(LINE)
        told.write("one\nopen\n, its end\ntwo\n")
        told.close()
        written = terminal.until("over\r\n")
        assert screen(LINE + written) == ["one", "no end, its end", "two", ""]
        assert running.wait(PATIENCE) == 0


@pytest.mark.parametrize("env", [{}, {"TERM": "dumb"}])
def test_a_dumb_terminal_has_none(env: dict[str, str]) -> None:
    with Terminal() as terminal, program(terminal, env) as (told, running):
        told.write("one\n")
        told.close()
        assert terminal.until("over\r\n") == "one\r\n"
        assert running.wait(PATIENCE) == 0


def test_a_pipe_has_none(tmp_path: Path) -> None:
    """Nor has a terminal on which what goes through the pipe may appear, as with `| tee`."""
    with Terminal() as terminal, open(tmp_path / "out", "wb") as out:
        with program(terminal, TERM, stdout=out.fileno()) as (told, running):
            told.write("one\n")
            told.close()
            assert running.wait(PATIENCE) == 0
        assert (tmp_path / "out").read_text() == "one\nover\n"
        assert terminal.written_so_far() == ""

"""entrypoints/last-words.py: what is passed on, and what is kept. With mpirun: tests/mpi."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "entrypoints" / "last-words.py"


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("RANK", "3")
    made = runpy.run_path(str(SCRIPT))["LastWords"](str(tmp_path))
    yield made
    made._file.close()


@pytest.mark.parametrize(
    ("pieces", "kept"),
    [
        ([(1, b"a\n"), (2, b"b\n"), (1, b"c\n")], b"a\nb\nc\n"),
        (
            [(1, b"sec"), (2, b"noise\n"), (1, b"ret\nand"), (2, b"more\n"), (1, b" on\n")],
            b"noise\nsecret\nmore\nand on\n",
        ),
        ([(1, b"asks: "), (2, b"10 %\r20 %")], b"asks: \n10 %\r20 %"),
        ([(2, b"10 %"), (1, b"asks: "), (2, b"\r20 %\nover")], b"10 %\r20 %\nasks: \nover"),
        ([(1, b"x" * 5000), (2, b"noise\n"), (1, b"y\n")], b"x" * 5000 + b"noise\ny\n"),
    ],
)
def test_no_line_cuts_another(pieces: list[tuple[int, bytes]], kept: bytes, words: Any, tmp_path: Path) -> None:
    for stream, data in pieces:
        words.add(stream, data)
    assert (tmp_path / "3").read_bytes() == kept


def test_the_end_of_much_is_kept(words: Any, tmp_path: Path) -> None:
    words.add(2, b"at step ")
    for number in range(40_000):
        words.add(1, b"%08d\n" % number)
    words.add(2, b"7")
    kept = (tmp_path / "3").read_bytes()
    assert kept.endswith(b"00039998\n00039999\nat step 7")
    assert 64 * 1024 <= len(kept) <= 129 * 1024


def test_a_program_goes_through_unchanged(tmp_path: Path) -> None:
    program = "printf 'no end'; printf 'err\\377' >&2; exit 5"
    done = subprocess.run(
        [sys.executable, "-IS", str(SCRIPT), str(tmp_path), "sh", "-c", program],
        env={**os.environ, "RANK": "3"},
        capture_output=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (5, b"no end", b"err\xff")
    assert sorted((tmp_path / "3").read_bytes().split(b"\n")) == [b"err\xff", b"no end"]

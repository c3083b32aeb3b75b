"""scripts/steady.py, over files of tests that are known to pass, fail, crash or hang."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

STEADY = Path(__file__).parents[1] / "scripts" / "steady.py"

MIXED = """
import os, pytest
def test_good(): pass
class TestGroup:
    @pytest.mark.parametrize("n", [1, 2])
    def test_odd(self, n): assert n % 2, "the seed is " + os.environ["A4_TEST_SEED"]
"""
GOOD = "def test_good(): pass"
CRASHING = "import os\ndef test_crash(): os._exit(3)"
HANGING = "import threading\ndef test_hang(): threading.Event().wait()"
TELLS_AND_HANGS = """
import threading
def test_hang():
    open("begun", "w").close()
    threading.Event().wait()
"""


def start(place: Path, tests: str, *options: str) -> subprocess.Popen[str]:
    (place / "test_it.py").write_text(tests)
    return subprocess.Popen(
        [sys.executable, STEADY, "--keep", "kept", *options, "--", "-p", "no:cacheprovider", "test_it.py"],
        cwd=place,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def steady(place: Path, tests: str, *options: str) -> tuple[int, list[str]]:
    """The exit code, and the lines that were printed, each space one wide."""
    command = start(place, tests, *options)
    shown, _ = command.communicate()
    return command.returncode, [" ".join(line.split()) for line in shown.splitlines()]


def test_what_failed_is_counted_and_its_output_kept(tmp_path: Path) -> None:
    code, lines = steady(tmp_path, MIXED, "--runs", "2", "--seed", "7")
    assert code == 1
    assert "2 of 2 test_it.py::TestGroup::test_odd[2], first with seed 7" in lines
    assert all(
        any(re.fullmatch(row, line) for line in lines) for row in (r"1 7 [\d.]+ 1 failed", r"2 8 [\d.]+ 1 failed")
    )
    assert "test_good" not in str(lines)
    for seed in (7, 8):
        assert f"the seed is {seed}" in (tmp_path / "kept" / f"seed-{seed}.log").read_text()


def test_nothing_is_kept_of_good_runs(tmp_path: Path) -> None:
    code, lines = steady(tmp_path, GOOD, "--runs", "1")
    assert code == 0
    assert lines[-1] == "nothing failed"
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    ("tests", "options", "said"),
    [
        (CRASHING, [], "(no results: exit code 3)"),
        (HANGING, ["--limit", "1"], "(no results: it hung)"),
        ("import nowhere", [], "test_it.py"),
    ],
    ids=["a crash", "a hang", "not collected"],
)
def test_what_gives_no_results_is_a_failure(tests: str, options: list[str], said: str, tmp_path: Path) -> None:
    code, lines = steady(tmp_path, tests, "--runs", "1", "--seed", "1", *options)
    assert code == 1
    assert f"1 of 1 {said}, first with seed 1" in lines


def test_ctrl_c_ends_all_and_shows_what_was_seen(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    command = start(tmp_path, TELLS_AND_HANGS, "--hogs")
    (tmp_path / "begun").read_bytes()  # until the test runs
    command.send_signal(signal.SIGINT)
    shown, _ = command.communicate()
    assert command.returncode == 130
    assert "interrupted: 0 of 5 runs have ended" in shown

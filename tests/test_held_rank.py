"""entrypoints/hold-rank.py where nobody starts the rank. How somebody does is in tests/cluster/test_without.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent.decide.ranks import RankEnd, parse_rank

SCRIPT = Path(__file__).resolve().parent.parent / "entrypoints" / "hold-rank.py"


def held(directory: Path, rank: str, *program: str) -> subprocess.CompletedProcess[str]:
    """Ranks of a run without rank 3, with as much patience as a test has."""
    (directory / "ranks").mkdir()
    (directory / "start-rank-3.txt").write_text("rank 3 waits\n")
    environ = {"RANK": rank, "PATH": "/usr/bin:/bin", "TOLD": "x=y\n z"}
    argv = [sys.executable, "-IS", str(SCRIPT), f"{directory}/start-rank-3", "0", *program]
    return subprocess.run(argv, env=environ, capture_output=True, text=True)


def test_nobody_comes(tmp_path: Path) -> None:
    deep = tmp_path / ("long" * 30)  # a socket's path may have 107 bytes
    deep.mkdir()
    done = held(deep, "3", "train", "a b")
    assert (done.returncode, done.stderr) == (69, "rank 3 waits\n  its command: train 'a b'\n")
    assert parse_rank((deep / "ranks" / "3").read_text()) == RankEnd(None, unclaimed=True)


def test_other_ranks_are_their_program(tmp_path: Path) -> None:
    done = held(tmp_path, "13", "env")
    assert (done.returncode, done.stdout) == (0, "RANK=13\nPATH=/usr/bin:/bin\nTOLD=x=y\n z\n"), done


@pytest.mark.parametrize(("program", "code"), [("/no/such", 127), ("/etc/passwd", 126)])
def test_other_ranks_cannot_start(tmp_path: Path, program: str, code: int) -> None:
    assert held(tmp_path, "0", program).returncode == code

"""scripts/old_commands.py wants all originals, each as the chart knows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.old_commands import TESTBEDS, named
from tests.chart.helm import HELM, ROOT

PATHS = sorted({path for testbed in TESTBEDS for path in named(testbed)})


@pytest.fixture
def originals(tmp_path: Path) -> Path:
    for path in PATHS:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("# of another state\n")
    return tmp_path


def said(originals: Path) -> list[str]:
    script = str(ROOT / "scripts" / "old_commands.py")
    ended = subprocess.run(
        [sys.executable, script, str(originals), "--helm", str(HELM)], capture_output=True, text=True, timeout=100
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    return ended.stderr.splitlines()


def test_a_file_that_is_missing_is_named(originals: Path) -> None:
    for gone in (PATHS[0], PATHS[-1]):
        (originals / gone).unlink()
    assert sorted(said(originals)) == [f"missing: {path}" for path in (PATHS[0], PATHS[-1])]


def test_a_script_that_the_chart_does_not_know_is_named(originals: Path) -> None:
    scripts = [path for path in PATHS if path.suffix == ".sh" and not path.name.startswith("command")]
    found = [line.partition(" is in another state")[0] for line in said(originals)]
    assert sorted(found) == sorted(str(path) for path in scripts)

"""scripts/old_commands.py wants all originals, each as the chart knows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from scripts.old_commands import TESTBEDS, named
from tests.chart.helm import HELM, ROOT

PATHS = sorted({path for testbed in TESTBEDS for path in named(testbed)})


def said(originals: Path) -> list[str]:
    script = str(ROOT / "scripts" / "old_commands.py")
    ended = subprocess.run(
        [sys.executable, script, str(originals), "--helm", str(HELM)], capture_output=True, text=True, timeout=100
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    return sorted(ended.stderr.splitlines())


def test_scripts_that_the_chart_does_not_know_and_files_that_are_missing_are_named(tmp_path: Path) -> None:
    for path in PATHS:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("# of another state\n")
    scripts = [path for path in PATHS if path.suffix == ".sh" and not path.name.startswith("command")]
    assert [line.partition(" is in another state")[0] for line in said(tmp_path)] == sorted(map(str, scripts))
    for gone in (PATHS[0], PATHS[-1]):
        (tmp_path / gone).unlink()
    assert said(tmp_path) == [f"missing: {path}" for path in (PATHS[0], PATHS[-1])]

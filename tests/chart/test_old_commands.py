"""scripts/old_commands.py takes checkouts of the originals, and says which scripts the chart does not know."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from scripts.old_commands import TESTBEDS
from tests.chart.helm import HELM, ROOT


def said(*checkouts: Path) -> list[str]:
    script = str(ROOT / "scripts" / "old_commands.py")
    ended = subprocess.run(
        [sys.executable, script, *map(str, checkouts), "--helm", str(HELM)], capture_output=True, text=True, timeout=100
    )
    assert ended.returncode == 1 and "| line |" in ended.stdout
    return ended.stderr.splitlines()


def test_scripts_that_the_chart_does_not_know_and_directories_without_a_testbed_are_named(tmp_path: Path) -> None:
    checkout, other = tmp_path / "checkout", tmp_path / "other"
    recipe = checkout / TESTBEDS[0].at
    (launcher,) = TESTBEDS[0].launchers
    for path in (recipe / launcher, recipe / "gke-runtime" / "jobset" / "Chart.yaml", recipe / "README.md"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("# of another state\n")
    other.mkdir()
    assert said(checkout) == [f"{checkout} has no testbed of old"]
    (recipe / "gke-runtime" / "values.yaml").write_text("{}\n")
    missing, unknown = said(checkout, other)
    assert missing == f"{other} has no testbed of old"
    assert unknown.startswith(f"checkout/{TESTBEDS[0].at}/{launcher} is in another state")

"""What README.md shows of the demo is what the demo prints."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.workbench.local.helpers import CHECKOUT, DEADLINE, needs_root


def lines_of(text: str) -> list[list[str]]:
    """The columns of each line up to the measured ones, without the version of Open MPI."""
    plain = [re.sub(r"\d+\.\d+\.\d+", "#", line.strip()) for line in text.splitlines()]
    return [re.split(r" {2,}", line)[:2] for line in plain]


@needs_root
def test_the_demo_prints_what_the_readme_shows(tmp_path: Path) -> None:
    readme = (CHECKOUT / "README.md").read_text()
    (shown,) = re.findall(r"It prints\n\n((?:    .*\n)+)\nand where `report.html` is", readme)
    (demo,) = re.findall(r"bin\)/a4-agent (local run .*) \$\(ARGS\)", (CHECKOUT / "Makefile").read_text())
    name = f"demo-{os.getpid()}"
    _, verb, *words = shlex.split(demo.replace("a4-results", str(tmp_path)))
    typed = [sys.executable, "-m", "agent", "local", verb, "--name", name, *words]
    done = subprocess.run(typed, cwd=CHECKOUT, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    wanted = lines_of(shown)
    assert lines_of(done.stdout.replace(name, "local"))[: len(wanted)] == wanted
    (page,) = tmp_path.glob("*/report.html")
    assert f"Results:\n  {page}\n" in done.stdout

"""What docs/journeys.md has people type prints what it shows there."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cluster.conftest import END_SECONDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/journeys.md").read_text()
AGENT = f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m agent "$@"\n'


def steps() -> list[tuple[str, str]]:
    """Each command of the page, and what it shows below."""
    blocks = re.findall(r"(?<=\n\n)(?:    .*\n)+", PAGE)
    texts = "".join(re.sub("^    ", "", block, flags=re.MULTILINE) for block in blocks).split("\n$ ")
    parted = [text.removeprefix("$ ").partition("\n") for text in texts]
    return [(command, shown) for command, _, shown in parted]


def under_names(command: str, name: str) -> str:
    """The same with clusters that no other test and no user of this machine has."""
    if re.search(r"\ba4-agent local \w+ --name ", command):
        return re.sub(r"\b(a4-agent local \w+ --name )", rf"\1{name}-", command)
    return re.sub(r"\ba4-agent local (\w+)", rf"a4-agent local \1 --name {name}", command)


def test_every_role_sees_what_the_page_shows(tmp_path: Path, torch: Path) -> None:
    """All in one cluster, and one beside it whose pods differ."""
    name = f"journeys-{os.getpid()}"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/a4-agent").write_text(AGENT)
    (tmp_path / "bin/a4-agent").chmod(0o755)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    search = f"{tmp_path}/bin:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": search, "TORCH_PYTHON": str(torch)}

    def typed(command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", under_names(command, name)],
            env=env,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=END_SECONDS,
        )
        said = done.stdout.replace(f" --name {name}", "").replace(name, "local")
        return re.sub(r"\(for [5-9] s\)", "(for 5 s)", said)  # 6 s where the cores are busy

    commands = steps()
    assert commands[0][0].startswith("a4-agent local up") and commands[-1][0] == "a4-agent local down"
    try:
        for command, shown in commands:
            said = typed(command)
            alike = doctest.OutputChecker().check_output(shown, said, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
            assert alike, f"$ {command}\n{said}\nand the page has\n{shown}"
    finally:
        typed("a4-agent local down --grace 0")

"""What docs/journeys.md has people type prints what it shows there; docs/zh/journeys.md has the same blocks."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.conftest import END_SECONDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/journeys.md").read_text()
AGENT = f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m agent "$@"\n'


PARTS = {
    "new": ("You are new here", "You run the cluster"),
    "trains": ("You train or measure", "You write programs that use it"),
    "knows": ("The second week", "You change it"),
}
"""Sections that one cluster is enough for."""
NO_PAGES = {"trains": " --env A4_REPORT=false"}
"""Nobody looks at a report there."""


def steps(*titles: str) -> list[tuple[str, str]]:
    """Each command of these sections, and what the page shows below it."""
    sections = dict(section.split("\n", 1) for section in PAGE.split("\n## ")[1:])
    blocks = re.findall(r"(?<=\n\n)(?:    .*\n)+", "".join(f"\n{sections[title]}\n" for title in titles))
    texts = "".join(re.sub("^    ", "", block, flags=re.MULTILINE) for block in blocks).split("\n$ ")
    parted = [text.removeprefix("$ ").partition("\n") for text in texts]
    return [(command, shown) for command, _, shown in parted]


def test_every_section_is_in_a_part() -> None:
    assert [title for titles in PARTS.values() for title in titles] == re.findall(r"(?m)^## (.*)", PAGE)


def under_names(command: str, name: str) -> str:
    """The same with clusters that no other test and no user of this machine has."""
    if re.search(r"\ba4-agent local \w+ --name ", command):
        return re.sub(r"\b(a4-agent local \w+ --name )", rf"\1{name}-", command)
    return re.sub(r"\ba4-agent local (\w+)", rf"a4-agent local \1 --name {name}", command)


@pytest.mark.parametrize("part", PARTS)
def test_every_role_sees_what_the_page_shows(tmp_path: Path, torch: Path, part: str) -> None:
    """In one cluster, and beside it those that commands start."""
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

    up, *commands = steps(PARTS["new"][0])[:1] + steps(*PARTS[part])[part == "new" :]
    assert up[0].startswith("a4-agent local up")
    try:
        for command, shown in ((up[0] + NO_PAGES.get(part, ""), up[1]), *commands):
            said = typed(command)
            alike = doctest.OutputChecker().check_output(shown, said, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
            assert alike, f"$ {command}\n{said}\nand the page has\n{shown}"
    finally:
        typed("a4-agent local down --grace 0")

"""What the docs list is what the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.catalogue import RUNNABLE
from agent.commands import VERBS
from agent.decide.messages import COORDINATOR_SAYS, WORKER_SAYS
from agent.errors import Exit
from agent.settings import SETTINGS

ROOT = Path(__file__).parents[1]


def doc(name: str) -> str:
    return (ROOT / name).read_text()


def rows(text: str) -> list[str]:
    """First cells of all table rows."""
    return re.findall(r"^\| `?([^`|]+?)`? *\|", text, re.MULTILINE)


def test_every_setting_is_documented() -> None:
    assert {setting.name for setting in SETTINGS} <= set(rows(doc("docs/settings.md")))


def test_every_exit_code_is_documented() -> None:
    listed = {int(number) for cell in rows(doc("docs/exit-codes.md")) for number in re.findall(r"\d+", cell)}
    assert {int(code) for code in Exit} <= listed


def test_every_message_is_documented() -> None:
    listed = set(rows(doc("docs/control-channel.md")))
    assert set(COORDINATOR_SAYS) | set(WORKER_SAYS) <= listed


def test_the_readme_names_every_verb_and_workload() -> None:
    text = doc("README.md")
    assert all(f"a4-agent {verb}" in text for verb in VERBS)
    assert set(RUNNABLE) <= set(rows(text))


@pytest.mark.parametrize(
    "page", [*sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("docs/**/*.md")), "README.md"]
)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", doc(page)):
        assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"

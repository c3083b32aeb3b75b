"""docs/inside.md speaks of what is there: files, classes, their members, and every phase."""

from __future__ import annotations

import ast
import re
from enum import Enum
from functools import cache
from pathlib import Path

import pytest

from agent.decide.course import Phase
from agent.lifecycle.coordinator import JobPhase
from agent.lifecycle.runs.part import PartPhase
from agent.lifecycle.worker import Life

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/inside.md").read_text()
SPANS = set(re.findall(r"`([^`\n]+)`", PAGE))


@cache
def names() -> dict[str, set[str]]:
    """Classes of the agent → their members; functions, constants and settings → none."""
    found: dict[str, set[str]] = {}
    for path in ROOT.glob("agent/**/*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).update(members(node))
            elif isinstance(node, ast.FunctionDef):
                found.setdefault(node.name, set())
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.setdefault(node.id, set())
            elif isinstance(node, ast.Constant) and re.fullmatch("A4_[A-Z_]+", str(node.value)):
                found.setdefault(str(node.value), set())
    return found


def members(kind: ast.ClassDef) -> set[str]:
    functions = {node.name for node in kind.body if isinstance(node, ast.FunctionDef)}
    stored = (node for node in ast.walk(kind) if isinstance(node, (ast.Name, ast.Attribute)))
    return functions | {ast.unparse(node).removeprefix("self.") for node in stored if isinstance(node.ctx, ast.Store)}


@pytest.mark.parametrize("span", sorted(span for span in SPANS if re.fullmatch(r"\w+(\.\w+)?", span)))
def test_every_name_is_there(span: str) -> None:
    kind, _, member = span.partition(".")
    known = names()
    assert kind in known, "docs/inside.md names what is not in agent/"
    assert not member or member in known[kind], f"{kind} has no {member}"


def test_every_file_is_there() -> None:
    paths = {span for span in SPANS if "/" in span and " " not in span}
    assert len(paths) > 5
    assert {path for path in paths if not (ROOT / path).is_file()} == set()


@pytest.mark.parametrize("phases", [JobPhase, Life, Phase, PartPhase], ids=lambda phases: str(phases.__name__))
def test_every_phase_is_explained(phases: type[Enum]) -> None:
    assert phases.__name__ in SPANS
    assert {phase.name for phase in phases} <= SPANS


def test_the_table_has_the_phases_of_a_run_in_their_order() -> None:
    table = PAGE.partition("## Told, prepared, go")[2]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [phase.name for phase in Phase]


def test_the_page_can_be_read_in_a_few_minutes() -> None:
    assert len(PAGE.splitlines()) <= 120

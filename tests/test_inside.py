"""docs/inside.md speaks of what is there: files, classes, their members, and every phase."""

from __future__ import annotations

import ast
import re
from enum import Enum
from pathlib import Path

from agent.decide.course import Phase
from agent.lifecycle.coordinator import JobPhase
from agent.lifecycle.runs.part import PartPhase
from agent.lifecycle.worker import Life

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/inside.md").read_text()
SPANS = set(re.findall(r"`([^`\n]+)`", PAGE))


def names() -> set[str]:
    """Classes of the agent and their members; functions, constants and settings."""
    found: set[str] = set()
    for path in ROOT.glob("agent/**/*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ClassDef):
                found |= {node.name, *(f"{node.name}.{member}" for member in members(node))}
            elif isinstance(node, ast.FunctionDef):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.Constant) and re.fullmatch("A4_[A-Z_]+", str(node.value)):
                found.add(str(node.value))
    return found


def members(kind: ast.ClassDef) -> set[str]:
    functions = {node.name for node in kind.body if isinstance(node, ast.FunctionDef)}
    stored = (node for node in ast.walk(kind) if isinstance(node, (ast.Name, ast.Attribute)))
    return functions | {ast.unparse(node).removeprefix("self.") for node in stored if isinstance(node.ctx, ast.Store)}


def test_every_name_is_there() -> None:
    spans = {span for span in SPANS if re.fullmatch(r"\w+(\.\w+)?", span)}
    assert spans and spans - names() == set(), "docs/inside.md names what is not in agent/"


def test_every_file_is_there() -> None:
    paths = {span for span in SPANS if "/" in span and " " not in span}
    assert len(paths) > 5
    assert {path for path in paths if not (ROOT / path).is_file()} == set()


def test_every_phase_is_explained() -> None:
    phases: list[type[Enum]] = [JobPhase, Life, Phase, PartPhase]
    assert {name for kind in phases for name in (kind.__name__, *kind.__members__)} <= SPANS


def test_the_table_has_the_phases_of_a_run_in_their_order() -> None:
    table = PAGE.partition("## Told, prepared, go")[2]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [phase.name for phase in Phase]


def test_the_page_can_be_read_in_a_few_minutes() -> None:
    assert len(PAGE.splitlines()) <= 120

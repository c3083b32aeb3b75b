"""docs/maintainers speaks of what is there: rooms and who imports whom, files, classes, their members, every phase."""

from __future__ import annotations

import ast
import re
from enum import Enum
from pathlib import Path

import pytest

from agent.commands import VERBS
from agent.lifecycle.coordinator import JobPhase
from agent.lifecycle.runs.course import Phase
from agent.lifecycle.runs.part import PartPhase
from agent.lifecycle.worker import Life
from tests.test_architecture import imported_modules, trees

ROOT = Path(__file__).parents[1]
DOORS = {name: (ROOT / f"docs/maintainers/{name}.md").read_text() for name in ("agent", "clinic", "workbench")}
PAGE = DOORS["agent"]
VERBS_OF_DOORS = {
    "doctor": "doctor",
    "bundle": "bundle",
    "bundle_part": "bundle",
    "report": "report",
    "local": "local",
    "local_verbs": "local",
    "completion": "local",
}
ROLES = {"coordinator", "worker", "serve", "forming"}
each_door = pytest.mark.parametrize("door", DOORS)


def spans(page: str) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", page))


def room_of(module: str) -> str:
    """Where a module is drawn: `lifecycle/runs`, `commands/doctor`; empty for one beside the rooms."""
    first, *rest = module.split(".")[1:] or [""]
    if module == "agent.commands.completion":  # it only lists the local clusters
        return ""
    if not rest:
        return first if first == "environment" else ""
    if first == "commands":
        return f"commands/{VERBS_OF_DOORS[rest[0]]}" if rest[0] in VERBS_OF_DOORS else first
    if first == "lifecycle":
        return first if rest[0] in ROLES else f"lifecycle/{rest[0]}"
    return f"{first}/{rest[0]}" if first in ("clinic", "workbench") else first


def imported_rooms() -> set[tuple[str, str]]:
    found = {(room_of(name), room_of(used)) for name, tree in trees().items() for used in imported_modules(name, tree)}
    return {(room, used) for room, used in found if room and used and room != used}


def arrows(door: str) -> set[tuple[str, str]]:
    return set(re.findall(r"^    (\S+) --> (\S+)$", DOORS[door], re.MULTILINE))


def reached(room: str, drawn: set[tuple[str, str]]) -> set[str]:
    """Rooms that arrows lead to from one, over others as well."""
    found = {used for start, used in drawn if start == room}
    for used in list(found):
        found |= reached(used, drawn)
    return found


@each_door
def test_every_arrow_of_a_picture_is_an_import(door: str) -> None:
    assert arrows(door) and arrows(door) - imported_rooms() == set()


def test_the_pictures_have_every_import_between_rooms() -> None:
    drawn = set().union(*map(arrows, DOORS))
    assert {(room, used) for room, used in imported_rooms() if used not in reached(room, drawn)} == set()


@each_door
def test_every_room_of_a_picture_is_explained(door: str) -> None:
    """Those of the other doors are explained there."""
    own = {"clinic": ("clinic/",), "workbench": ("workbench/",)}.get(door, ("lifecycle/", "workloads", "report"))
    rooms = {room for arrow in arrows(door) for room in arrow if room.startswith(own) and room != "clinic/interface"}
    table = DOORS[door].partition("\n| room | has |\n")[2].partition("\n\n")[0]
    assert {room for room in rooms if f"`{room.removeprefix('lifecycle/')}`" not in table} - {
        "lifecycle/waits"
    } == set()


@each_door
def test_five_files_are_to_be_read_first(door: str) -> None:
    listed = DOORS[door].partition("Read these first, in this order:\n\n")[2].partition("\n\n")[0]
    assert re.findall(r"^(\d)\. `agent/\S+\.py`: ", listed, re.MULTILINE) == list("12345")


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


@each_door
def test_every_name_is_there(door: str) -> None:
    named = {span for span in spans(DOORS[door]) if re.fullmatch(r"\w+(\.(?!py$)\w+)?", span)}
    rooms = {path.name for path in ROOT.glob("agent/**/") if (path / "__init__.py").exists()}
    assert named and named - names() - rooms - set(VERBS) == set(), (
        f"docs/maintainers/{door}.md names what is not there"
    )


@each_door
def test_every_file_is_there(door: str) -> None:
    paths = {span for span in spans(DOORS[door]) if "/" in span and " " not in span}
    assert len(paths) > 5
    assert {path for path in paths if not (ROOT / path).exists() and not (ROOT / "agent" / path).exists()} == set()


def test_every_phase_is_explained() -> None:
    phases: list[type[Enum]] = [JobPhase, Life, Phase, PartPhase]
    assert {name for kind in phases for name in (kind.__name__, *kind.__members__)} <= spans(PAGE)


def test_the_table_has_the_phases_of_a_run_in_their_order() -> None:
    table = PAGE.partition("## Told, prepared, go")[2]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [phase.name for phase in Phase]


@each_door
def test_each_page_can_be_read_in_a_few_minutes(door: str) -> None:
    assert len(DOORS[door].splitlines()) <= 160

"""What lists workloads or fabrics elsewhere has those that the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.catalogue import RUNNABLE, WORKLOADS
from agent.fabrics import FABRICS
from agent.fabrics.profiles import CHOICES
from agent.workloads import find_workload
from agent.workloads.base import Workload
from scripts import chart_names

ROOT = Path(__file__).parents[1]


def doc(name: str) -> str:
    return (ROOT / name).read_text()


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_row_leads_to_its_workload(name: str) -> None:
    workload = find_workload(name)
    assert isinstance(workload, Workload) and workload.name == name


def test_every_room_has_a_row() -> None:
    rooms = "".join(path.read_text() for path in ROOT.glob("agent/workloads/**/*.py"))
    named = set(re.findall(r'^class \w+\(\w+\):\n    name = "([^"]+)"', rooms, re.MULTILINE))
    assert named == set(WORKLOADS), "agent/catalogue.py has a row for each workload, and only for those"


@pytest.mark.parametrize("path", chart_names.FILES, ids=lambda path: path.name)
def test_the_chart_takes_these_workloads_and_fabrics(path: Path) -> None:
    text = path.read_text()
    assert text == chart_names.FILES[path](text), f"to give the chart the agent's names: {chart_names.COMMAND}"


@pytest.mark.parametrize("page", ["README.md", "docs/workloads.md"])
def test_the_docs_have_a_row_for_each_workload(page: str) -> None:
    first_cells = re.findall(r"^\| \[?`([^`]+)`", doc(page), re.MULTILINE)
    assert set(RUNNABLE) <= set(first_cells), f"{page} has one table row for each workload"


def test_the_docs_tell_the_limits_of_silence() -> None:
    limits = {entry.stall_seconds for entry in WORKLOADS.values()} - {0.0}
    (told,) = re.findall(r"`auto`: (\d+) for (.*?), else never", doc("docs/settings.md"))
    assert (limits, set(re.findall(r"`(\w+)`", told[1]))) == (
        {float(told[0])},
        {name for name, entry in WORKLOADS.items() if entry.stall_seconds},
    )


def test_the_settings_page_has_each_fabric() -> None:
    (cell,) = re.findall(r"^\| `A4_PROFILE` \|.*", doc("docs/settings.md"), re.MULTILINE)
    assert set(CHOICES) <= set(re.findall(r"`([^`]+)`", cell)), "docs/settings.md, the row of A4_PROFILE"


@pytest.mark.parametrize("name", FABRICS)
def test_a_fabric_has_its_file_and_its_row(name: str) -> None:
    assert (ROOT / f"env/{name}.env").is_file(), f"a fabric's variables are in env/{name}.env"
    row = f"| `{name}` | `{FABRICS[name].mark}` |"
    assert row in doc("docs/environment.md"), f"docs/environment.md has no row {row}"


def test_every_file_of_variables_is_a_fabrics() -> None:
    assert {path.stem for path in ROOT.glob("env/*.env")} == set(FABRICS)


@pytest.mark.parametrize("name", RUNNABLE)
def test_the_docs_have_the_options_of_each_workload(name: str) -> None:
    page = doc({"nccl": "docs/nccl.md", "deepep": "docs/deepep.md"}.get(name, "docs/workloads.md"))
    for option in find_workload(name).options:
        names = ", ".join(f"`{one}`" for one in (*option.names[:-1], f"{option.names[-1]} {option.value}"))
        row = f"| {names} | {option.help} | {option.default}"
        assert row in page, f"{name} has no row in the docs: {row}"

"""What lists workloads or fabrics elsewhere has those that the code has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agent.catalogue import RUNNABLE, WORKLOADS
from agent.fabrics import FABRICS
from agent.fabrics.profiles import CHOICES
from agent.workloads import find_workload
from agent.workloads.base import Workload

ROOT = Path(__file__).parents[1]
SCHEMA: dict[str, Any] = json.loads((ROOT / "chart/values.schema.json").read_text())["properties"]


def doc(name: str) -> str:
    return (ROOT / name).read_text()


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_row_leads_to_its_workload(name: str) -> None:
    workload = find_workload(name)
    assert isinstance(workload, Workload) and workload.name == name


def test_every_room_has_a_row() -> None:
    classes = re.findall(
        r'^class (\w+)\(\w+\):\n    name = "',
        "".join(p.read_text() for p in ROOT.glob("agent/workloads/**/*.py")),
        re.M,
    )
    assert sorted(classes) == sorted(entry.class_name for entry in WORKLOADS.values())


def test_the_chart_takes_these_workloads() -> None:
    known = SCHEMA["workload"]["properties"]["run"]["enum"]
    assert set(known) == {*RUNNABLE, "", None}
    (told,) = re.findall(r"# -- What runs on the formed cluster: (.*?)\. Not set", doc("chart/values.yaml"), re.DOTALL)
    assert set(re.findall(r"[\w-]+", told)) - {""} == set(RUNNABLE)


@pytest.mark.parametrize("page", ["README.md", "docs/workloads.md"])
def test_the_docs_have_a_row_for_each_workload(page: str) -> None:
    first_cells = re.findall(r"^\| \[?`([^`]+)`", doc(page), re.MULTILINE)
    assert set(RUNNABLE) <= set(first_cells)


def test_the_docs_tell_the_limits_of_silence() -> None:
    limits = {entry.stall_seconds for entry in WORKLOADS.values()} - {0.0}
    (told,) = re.findall(r"`auto`: (\d+) for (.*?), else never", doc("docs/settings.md"))
    assert (limits, set(re.findall(r"`(\w+)`", told[1]))) == (
        {float(told[0])},
        {name for name, entry in WORKLOADS.items() if entry.stall_seconds},
    )


def test_the_chart_takes_these_fabrics() -> None:
    assert set(SCHEMA["network"]["properties"]["profile"]["enum"]) == {*CHOICES, "", None}
    (told,) = re.findall(r"# -- Fabric profile: (.*)\.", doc("chart/values.yaml"))
    assert set(re.findall(r"[\w-]+", told)) - {"or"} == set(CHOICES)


@pytest.mark.parametrize("name", FABRICS)
def test_a_fabric_has_its_file_and_its_row(name: str) -> None:
    assert (ROOT / f"env/{name}.env").is_file()
    assert f"| `{name}` | `{FABRICS[name].mark}` |" in doc("docs/environment.md")


def test_every_file_of_variables_is_a_fabrics() -> None:
    assert {path.stem for path in ROOT.glob("env/*.env")} == set(FABRICS)


@pytest.mark.parametrize("name", RUNNABLE)
def test_the_docs_have_the_options_of_each_workload(name: str) -> None:
    page = doc({"nccl": "docs/nccl.md", "deepep": "docs/deepep.md"}.get(name, "docs/workloads.md"))
    for option in find_workload(name).options:
        names = ", ".join(f"`{one}`" for one in (*option.names[:-1], f"{option.names[-1]} {option.value}"))
        row = f"| {names} | {option.help} | {option.default}"
        assert row in page, f"{name} has no row in the docs: {row}"

"""docs/pai-megatron.md says what the code does, and each pitfall in it has a test."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from agent.workloads.pai_megatron import versions
from agent.workloads.pai_megatron.arguments import ITERATIONS, OF_SCRIPT, TRAINING, told_name
from agent.workloads.pai_megatron.models import QWEN3, QWEN3_NEXT
from agent.workloads.pai_megatron.options import SKIPS
from tests.decide.test_pai_megatron import arguments, pods

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/pai-megatron.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table after a heading, without its head."""
    lines = PAGE.split(f"\n{heading}\n", 1)[1].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("|"))
    table = [line for line in lines[first:] if line.startswith("|")]
    last = next((number for number, line in enumerate(lines[first:]) if not line.startswith("|")), len(table))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:last]]


def test_every_argument_has_its_row() -> None:
    told = rows("### Arguments of the training")
    assert [(int(row[0]), row[1]) for row in told] == [(n, argument.name) for n, argument in enumerate(TRAINING, 1)]
    assert all(f"`MP_{told_name(name, 'true')}`" in PAGE for name in ITERATIONS)


def test_the_defaults_of_the_arguments() -> None:
    told = {row[1]: row[2:] for row in rows("### Arguments of the training")}
    for column, family in enumerate((QWEN3, QWEN3_NEXT)):
        given = arguments(pods(family))
        said = {name: re.split(r"[;,] ", cells[column])[0] for name, cells in told.items()}
        plain = {name for name, value in said.items() if re.fullmatch(r"[\w.-]+", value) and value != "likewise"}
        plain -= {"PAD_LEN"}
        assert {"LR", "TP", "EP", "AC", "TRAIN_TOKENS"} <= plain
        assert {name: given[name] for name in plain} == {name: said[name] for name in plain}


def test_every_switch_and_variable_is_named() -> None:
    names = {name for variables in SKIPS.values() for name in variables} | set(OF_SCRIPT)
    names |= {"TRAINING_MODE", "USE_JSON_SFT", "FORCE_CONVERSION", "MODEL_PARALLEL_ARGS", "PAI_WORKSPACE_ROOT"}
    assert {name for name in names if f"`{name}`" not in PAGE} == set()


def test_each_pitfall_has_a_test() -> None:
    told = rows("## Pitfalls")
    assert len(told) == 29
    every = "".join(path.read_text() for path in ROOT.glob("tests/**/test_*.py"))
    assert [row[2] for row in told if f"def {row[2].strip('`')}(" not in every] == []


def test_the_versions() -> None:
    wanted = {versions.COMMIT, *(path.rpartition("/")[2] for path in versions.SUBMODULES)}
    told = rows("## Versions")
    assert {one for one in wanted if f"`{one}`" not in " ".join(told[0])} == set()


def test_the_table_of_packages() -> None:
    """Package, what is installed, what each model accepts: as in versions.py."""
    all_rows = {**versions.PACKAGES, **versions.EXTENSIONS, **versions.BASE}
    accepted = [versions.accepted(all_rows, scripts) for scripts in ("qwen3", "qwen3_next")]

    def cell(name: str, found: Mapping[str, str]) -> str:
        return "" if name not in found else f"`{found[name][len(name) :]}`" if found[name] != name else "any"

    wanted = [
        [f"`{name}`", f"`{row.installed}`" if row.installed else "the base's", *(cell(name, one) for one in accepted)]
        for name, row in all_rows.items()
    ]
    assert rows("### Packages") == wanted

"""Both engines of Helm, and an API server for them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.chart.api import running
from tests.chart.cases import CASES
from tests.chart.helm import CHART, ROOT, Engines, Helm3, Helm4, Words
from tests.chart.objects import Store


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """To render with: nothing is ever made on their server."""
    home = tmp_path_factory.mktemp("helm")
    with running(home) as (_, kubeconfig):
        helm3 = Helm3(home, kubeconfig)
        helm4 = Helm4(home)
        yield Engines(helm3, helm4)
        helm4.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Store, Path]]:
    """An empty server of the test's own, and its kubeconfig."""
    with running(tmp_path) as server:
        yield server


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Words]:
    """The words of a case of tests/chart/cases.py, by its name."""
    return cache(lambda name: CASES[name](tmp_path_factory.mktemp("case")))


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which the pages' commands can be typed, with scripts of their readers' own."""
    place = tmp_path_factory.mktemp("checkout")
    (place / "chart").symlink_to(CHART)
    shutil.copytree(ROOT / "examples", place / "examples")
    for name in ("train", "examples/pai-megatron-qwen3", "examples/pai-megatron-qwen3-next", "examples/qwen3"):
        (place / f"{name}.sh").write_text("#!/bin/bash\necho hello\n")
    return place

"""The library: docs/api.md is what `agent` exports, and its examples run."""

from __future__ import annotations

import ast
import doctest
import inspect
import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import agent
import agent.testing
from agent.paths import DEFAULT_RUN_DIR
from agent.workbench.local.client import LocalCluster
from agent.workbench.local.spec import ClusterSpec
from scripts import api_reference
from tests.test_architecture import HEAVY

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/api.md").read_text()
NAMES = [name for name in agent.__all__ if name != "__version__"]
SECONDS = 150.0
"""Guards against hanging."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces and mounts")


def blocks(marker: str) -> list[tuple[str, str]]:
    """Each script that the page marks so, and what the page says that it prints."""
    block = r"((?:(?:    .*)?\n)+)"
    found = re.findall(rf"^<!-- {marker} -->\n\n{block}(?:prints\n\n{block})?", PAGE, re.MULTILINE)
    return [(inspect.cleandoc("\n" + code), inspect.cleandoc("\n" + printed)) for code, printed in found]


def agrees(wanted: str, got: str) -> bool:
    """`...` stands for anything, as in doctests."""
    return doctest.OutputChecker().check_output(wanted + "\n", got, doctest.ELLIPSIS)


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout


# Names


def test_the_page_has_what_signatures_and_docstrings_say() -> None:
    assert api_reference.text(PAGE) == PAGE, f"run {api_reference.COMMAND}"


def test_the_page_lists_the_public_names() -> None:
    assert sorted(api_reference.listed(PAGE)) == sorted([*NAMES, *agent.testing.__all__])


def test_public_names_say_what_they_are() -> None:
    texts = {name: getattr(agent, name).__doc__ or "" for name in NAMES}
    bare = [name for name, text in texts.items() if not text or text.startswith(f"{name}(")]
    assert bare == []  # the latter is what dataclasses and tuples say of themselves


@pytest.mark.parametrize("name", ["RunSpec", "MpirunOptions"])
def test_help_tells_every_field_of_what_a_caller_fills_in(name: str) -> None:
    kind = getattr(agent, name)
    assert re.findall(r"^    (\w+): ", kind.__doc__, re.MULTILINE) == list(kind._fields)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((ROOT / "agent/__init__.pyi").read_bytes())
    found = [
        (node.module, alias.name) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    assert sorted(name for _, name in found) == sorted(NAMES)
    for module, name in found:
        assert getattr(agent, name) is getattr(import_module(str(module)), name)


def test_a_name_that_is_not_there_is_missed() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        agent.no_such_name  # type: ignore[attr-defined]  # noqa: B018
    shown = set(dir(agent))
    assert set(agent.__all__) == {name for name in shown if name == "__version__" or not name.startswith("_")}


# What importing costs

LOADED = "import json, sys; old = {*sys.modules}; import agent; %s; print(json.dumps([*{*sys.modules} - old]))"


def test_importing_the_package_imports_nothing_else() -> None:
    assert json.loads(run_python(LOADED % "agent.__all__")) == ["agent"]


def test_no_name_needs_a_heavy_module() -> None:
    """Those are for an agent that lives, or for the coordinator alone."""
    loaded = {
        name.partition(".")[0]
        for name in json.loads(run_python(LOADED % "[*map(agent.__getattr__, agent.__all__[1:])]"))
    }
    assert "agent" in loaded
    assert not loaded & HEAVY


# Examples


def test_the_examples_hold() -> None:
    failed, attempted = doctest.testfile(str(ROOT / "docs/api.md"), module_relative=False)
    assert attempted > 10
    assert not failed


@needs_root
def test_the_examples_for_pods_hold() -> None:
    """A cluster whose ENTRYPOINT is the page's own; its scripts run in the last pod, and the last of all ends it."""
    ((entrypoint, _),) = blocks("entrypoint of every pod")
    spec = ClusterSpec(
        pods=2,
        gpus_per_pod=2,
        entrypoint=("tini", "--", sys.executable, "/opt/entrypoint.py"),
        files={"/opt/entrypoint.py": entrypoint.encode()},
        env={"SLEEP_INFINITY": "true"},
    )
    with LocalCluster(spec) as cluster:
        cluster.start()
        cluster.wait_for_file(f"{DEFAULT_RUN_DIR}/plan.json", SECONDS)
        scripts = blocks("in a pod")
        assert len(scripts) == 3
        for script, printed in scripts:
            done = cluster.exec(1, [sys.executable, "-c", script], timeout=SECONDS)
            assert done.returncode == 0, done.stderr
            assert agrees(printed, done.stdout), done.stdout
        cluster.exec(1, [sys.executable, "-c", "import agent; agent.Client().release()"], timeout=SECONDS)
        assert [pod.code for pod in cluster.wait(SECONDS)] == [0, 0], cluster.logs(0)


@needs_root
def test_the_example_of_a_local_cluster_holds() -> None:
    ((script, printed),) = blocks("on this machine")
    assert run_python(script) == printed + "\n"

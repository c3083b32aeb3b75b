"""The shape of the code (CONTRIBUTING.md): which part may import which, and where effects may be."""

from __future__ import annotations

import ast
import configparser
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

ALLOWED = {
    "decide": {"decide"},
    "fabrics": {"fabrics", "decide"},
    "workloads": {"workloads", "fabrics", "decide"},
    "report": {"report", "workloads", "decide"},
    "machine": {"machine"},
    "lifecycle": {"lifecycle", "clinic.interface", "workloads", "fabrics", "machine", "decide"},
    "commands": {"commands", "report", "lifecycle", "clinic.interface", "workloads", "fabrics", "machine", "decide"},
    "clinic.interface": {"clinic.sources", "clinic.why", "clinic.doctor", "decide"},
    "clinic.why": {"clinic.why", "decide"},
    "clinic.sources": {"clinic.sources", "clinic.why", "machine", "decide"},
    "clinic.doctor": {"clinic.doctor", "decide"},
    "clinic.probes": {"clinic.probes", "clinic.doctor", "machine", "decide"},
    "clinic.find_slow": {"clinic.find_slow", "workloads", "fabrics", "decide"},
    "workbench.local": {"workbench.local", "lifecycle", "workloads", "fabrics", "machine", "decide"},
    "workbench.comparing": {"workbench.comparing", "report", "workloads", "decide"},
    "testing": {"testing", "lifecycle", "clinic.interface", "workloads", "machine", "decide"},
}
"""Parts of the package, and the parts that each may import. Modules beside them are free to all.

Of `clinic` the agent imports the interface alone, of `workbench` and `testing` nothing; all other parts are its own.
"""

ALLOWED_FOR_MODULE = {
    "agent.settings": {"decide", "fabrics"},
    "agent.cli": {"commands"},
    "agent.log": {"decide"},
    "agent.client": {"decide", "clinic.interface"},
    "agent.connection": {"machine"},
    "agent.environment": {"lifecycle", "machine", "decide"},
    "agent.exporter": {"machine", "decide"},
    "agent": {"workbench.local", "lifecycle", "machine", "decide"},  # names of the library, imported when they are used
    # The verbs that open the other doors.
    "agent.commands.doctor": ALLOWED["commands"] | {"clinic.doctor", "clinic.probes"},
    "agent.commands.bundle": ALLOWED["commands"] | {"clinic.doctor"},
    "agent.commands.bundle_part": ALLOWED["commands"] | {"clinic.doctor", "clinic.probes"},
    "agent.commands.report": ALLOWED["commands"] | {"workbench.comparing"},
    "agent.commands.local": ALLOWED["commands"] | {"workbench.local"},
    "agent.commands.local_verbs": ALLOWED["commands"] | {"workbench.local"},
    "agent.commands.completion": ALLOWED["commands"] | {"workbench.local"},  # the names of clusters
}
"""Exceptions by module. Any other module beside the parts imports none of them."""

EFFECTS = {"os", "socket", "subprocess", "time", "threading", "signal", "shutil"}
PURE_PARTS = (
    "decide", "fabrics", "workloads", "report", "clinic.why", "clinic.doctor", "clinic.find_slow", "workbench.comparing"
)  # fmt: skip
PURE_MODULES = (
    "agent.commands.shell_env",
    "agent.lifecycle.pod.ssh_files",
    "agent.lifecycle.runs.course",
    "agent.lifecycle.runs.merged_series",
    "agent.lifecycle.runs.tagged_lines",
    "agent.lifecycle.sharing.claim_files",
    "agent.lifecycle.sharing.mounts",
    "agent.lifecycle.stages.records",
)
"""Decisions of one room alone."""
PURE = {"signal.Signals"}  # a table of names; `from signal import Signals` brings nothing else
EFFECT_CALLS = {"open", "print", "input", "os.system", "time.sleep"}
HEAVY = {
    "paramiko", "dns", "tenacity", "psutil", "asyncio", "torch", "mpi4py", "jinja2", "matplotlib", "logging",
    "prometheus_client",
}  # fmt: skip


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.glob("agent/**/*.py"))}
RANK_PROGRAMS = sorted(ROOT.glob("entrypoints/**/*.py"))
SHELL_SCRIPTS = sorted(path for place in ("entrypoints", "scripts", "docker") for path in ROOT.glob(f"{place}/**/*.sh"))
SHELL_SCRIPTS += [ROOT / "bin/a4-agent", ROOT / "kubectl/kubectl-a4"]


def part_of(module: str) -> str:
    """`decide` for agent.decide.plan, `clinic.why` for agent.clinic.why.waits; empty for a module beside the parts."""
    words = module.split(".")[1:]
    return next((part for part in (".".join(words[:2]), ".".join(words[:1])) if part in ALLOWED), "")


@cache
def trees() -> dict[str, ast.Module]:
    """Every module, parsed; not when the tests are collected, which each worker does."""
    return {name: ast.parse(path.read_bytes(), str(path)) for name, path in MODULES.items()}


def modules_in(*parts: str) -> list[str]:
    return [name for name in MODULES if part_of(name) in parts]


def imports(module: str, tree: ast.AST) -> Iterator[str]:
    """Dotted names of all that a module imports, wherever the statement stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module} has a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and called(node).endswith(("import_module", "__import__")):
            yield from (str(a.value) for a in node.args if isinstance(a, ast.Constant))


def called(node: ast.Call) -> str:
    """What a call calls, as it is written: `time.sleep`."""
    return ast.unparse(node.func)


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def wrong_imports(module: str, tree: ast.AST) -> list[str]:
    allowed = ALLOWED_FOR_MODULE.get(module, ALLOWED.get(part_of(module), set()))
    parts = {part_of(name) for name in imports(module, tree) if name.split(".")[0] == "agent"}
    return [f"{module} imports agent.{part}" for part in sorted(parts - allowed - {""})]


def imported_modules(module: str, tree: ast.AST) -> set[str]:
    """Modules of the package that one imports, wherever the statement stands: in a function or for types alone, too."""
    found = set()
    for name in imports(module, tree):
        while name and name not in MODULES:
            name = name.rpartition(".")[0]
        found.add(name)
    return found - {"", module}


def shell_calls(tree: ast.AST) -> list[str]:
    """Calls that hand a text to a shell."""
    return [
        ast.unparse(call)
        for call in calls(tree)
        if called(call) in {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}
        or any(
            k.arg == "shell" and not (isinstance(k.value, ast.Constant) and not k.value.value) for k in call.keywords
        )
    ]


def test_there_is_something_to_look_at() -> None:
    for part in ALLOWED.keys() - {"clinic.interface"}:
        assert len(modules_in(part)) >= 2, f"agent/{part} has no modules"
    assert {"agent.cli", "agent.errors", "agent.launch", "agent.log", "agent.paths", "agent.settings"} <= set(MODULES)
    assert len(RANK_PROGRAMS) >= 1
    assert len(SHELL_SCRIPTS) >= 2
    assert wrong_imports("agent.decide.x", trees()["agent.lifecycle.coordinator"])
    assert wrong_imports("agent.lifecycle.x", trees()["agent.commands.doctor"])
    assert effects("agent.decide.x", trees()["agent.machine.files"])


def test_imports_go_one_way() -> None:
    assert [wrong for module, tree in trees().items() for wrong in wrong_imports(module, tree)] == []


def test_what_serves_metrics_is_in_its_own_process() -> None:
    """No other module loads it, or Prometheus' client with it."""
    heavy = {"prometheus_client", "agent.exporter"}
    users = {
        name for name, tree in trees().items() if any(found.startswith(tuple(heavy)) for found in imports(name, tree))
    }
    assert users == {"agent.exporter"}


def test_no_modules_import_each_other() -> None:
    """`agent` itself is left out: the names of the library are in it, each imported when it is used, and a package is
    imported before its modules anyway."""
    needs = {name: imported_modules(name, tree) - {"agent"} for name, tree in trees().items() if name != "agent"}
    assert needs["agent.lifecycle.coordinator"] & set(modules_in("decide"))
    TopologicalSorter(needs).prepare()  # raises CycleError, which names them


def effects(module: str, tree: ast.AST) -> set[str]:
    """What a decision may not use."""
    used = {name for name in imports(module, tree) if name not in PURE}
    return ({name.split(".")[0] for name in used} & EFFECTS) | ({called(call) for call in calls(tree)} & EFFECT_CALLS)


def test_decisions_have_no_effects() -> None:
    modules = [*modules_in(*PURE_PARTS), *PURE_MODULES]
    assert {module: found for module in modules if (found := effects(module, trees()[module]))} == {}


def test_entrypoints_stand_alone() -> None:
    """They run under Pythons in which the agent is not installed; downloaders under those that have theirs."""
    own = {"download-model": {"huggingface_hub", "modelscope"}, "check-packages": {"packaging", "pip"}}
    wrong = {}
    for path in RANK_PROGRAMS:
        tree = ast.parse(path.read_bytes())
        siblings = {each.stem for each in path.parent.glob("*.py")}
        allowed = {*sys.stdlib_module_names, "torch", "mpi4py"} | siblings | own.get(path.stem, set())
        used = {name.split(".")[0] for name in imports(path.stem, tree)}
        wrong[path.name] = [*sorted(used - allowed), *shell_calls(tree)]
    assert {name: found for name, found in wrong.items() if found} == {}


def test_no_private_module_of_python_is_imported() -> None:
    """`_json` and the like may be gone in the next Python."""
    programs = {path.stem: ast.parse(path.read_bytes()) for path in RANK_PROGRAMS}
    used = {name.split(".")[0] for module, tree in {**trees(), **programs}.items() for name in imports(module, tree)}
    assert not {name for name in used & sys.stdlib_module_names if name.startswith("_") and not name.endswith("__")}


def test_no_shell_is_started() -> None:
    assert {module: found for module, tree in trees().items() if (found := shell_calls(tree))} == {}


def pythons(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Each Python that is started, and what it is told first."""
    for node in ast.walk(tree):
        if isinstance(node, ast.List) and len(node.elts) > 1:
            program, first = (ast.unparse(each) for each in node.elts[:2])
            if re.search(r"\b(executable|python)'?$", program):
                yield program, first.strip("'")


def test_pythons_of_ours_take_no_module_from_the_user() -> None:
    """With -E the agent names the directory itself in which they are started. The workload's Python has the user's."""
    found = {(name, *started) for name, tree in trees().items() for started in pythons(tree)}
    open_to_users = {(module, program) for module, program, first in found if not re.match("-[IE]", first)}
    assert open_to_users == {
        ("agent.decide.torchrun", "python"),
        ("agent.lifecycle.stages.work", "work.python"),
        ("agent.clinic.probes.gpu_probe", "python"),
    }
    assert {"agent.paths", "agent.machine.process", "agent.workbench.local.client"} <= {module for module, *_ in found}


def sleeps(module: str, tree: ast.AST) -> bool:
    """Waiting is for an event or a deadline, and belongs to the machine."""
    return "time.sleep" in {called(call) for call in calls(tree)} | set(imports(module, tree))


def test_nobody_sleeps() -> None:
    assert {part_of(module) for module, tree in trees().items() if sleeps(module, tree)} == {
        "machine",
        "workbench.local",
    }


def loaded_by(module: str) -> set[str]:
    """What an import of this module brings into a new Python."""
    code = f"import sys, json; old = set(sys.modules); import {module}; print(json.dumps([*set(sys.modules) - old]))"
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    return set(json.loads(shown.stdout))


def test_the_command_line_starts_light() -> None:
    """Whoever only asks for help does not wait for libraries."""
    loaded = {name.split(".")[0] for name in loaded_by("agent.cli")}
    assert "agent" in loaded
    assert loaded & HEAVY == set()


@pytest.mark.parametrize(
    ("module", "later"),
    [
        ("agent.lifecycle.worker", {"agent.lifecycle.channel.roster", "agent.lifecycle.runs.own_parts", "dataclasses"}),
        ("agent.lifecycle.serve", {"dataclasses", "secrets"}),
        ("agent.client", {"dataclasses"}),
        ("agent.commands.run", {"agent.workloads.base", "dataclasses"}),
        ("agent.commands.completion", {"agent.settings"}),
    ],
)
def test_each_start_is_light(module: str, later: set[str]) -> None:
    """That of every pod, and that of every key that asks a shell for completion."""
    loaded = loaded_by(module)
    assert module in loaded
    assert loaded & later == set()


def test_shell_scripts_are_valid() -> None:
    commands = [*(["sh", "-n", str(path)] for path in SHELL_SCRIPTS), ["shellcheck", *map(str, SHELL_SCRIPTS)]]
    done = [subprocess.run(argv, capture_output=True, text=True) for argv in commands]
    assert [one.stdout + one.stderr for one in done if one.returncode] == []


def test_every_data_file_is_installed() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    for kind in ("entrypoints", "env"):
        files = setup["options.data_files"]
        places = [place for place in files if place.startswith(f"share/a4-agent/{kind}")]
        installed = {path for place in places for path in ROOT.glob(files[place])}
        there = {path for path in (ROOT / kind).rglob("*") if path.is_file() and "__pycache__" not in path.parts}
        assert there == installed


def test_the_rooms_of_the_lifecycle_import_one_way() -> None:
    """What is kept knows no pod, a pod no run: each room can be read without those that use it."""
    rooms: dict[str, set[str]] = {}
    for name, tree in trees().items():
        if re.match(r"agent\.lifecycle\.\w+\.", name):
            used = {found.split(".")[2] for found in imported_modules(name, tree) if found.count(".") > 2}
            rooms.setdefault(name.split(".")[2], set()).update(used)
    assert {"keeping", "pod", "channel", "runs"} <= rooms.keys()
    TopologicalSorter({room: used - {room} for room, used in rooms.items()}).prepare()

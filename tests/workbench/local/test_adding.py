"""What CONTRIBUTING says of adding this or that, done in a copy of the package.

What is added has its name in three files of code and chart at most; scripts write it into others.
"""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent import catalogue
from tests.workbench.local.helpers import CHECKOUT, DEADLINE, needs_root, until_asleep

WORKLOAD = '''\
"""`hello`: every pod prints its rank in the plan."""

from agent.launch import Launch
from agent.workloads.base import Judgement, Kind, Outcome, RunContext, Workload
from agent.workloads.ends import end_without_failure


class Hello(Workload):
    name = "hello"
    kind: Kind = "everywhere"

    def launch(self, context: RunContext) -> Launch:
        rank = context.plan.node_rank(context.index)
        return Launch(["echo", f"hello from rank {rank}"], {**context.environ})

    def judge(self, context: RunContext, outcome: Outcome) -> Judgement:
        return Judgement(end_without_failure(context, outcome, "hello"))
'''
WORKLOAD_ROW = '    "hello": Entry("every pod prints its rank"),\n'
FABRIC = '''\
"""A fabric of the test."""

from agent.fabrics.fabric import Fabric, Needs

FABRIC = Fabric("a5-test", "/opt/a5", "A5", lambda environ: Needs(), lambda inventory: ["no A5 here"])
'''
VERB = '''\
"""`a4-agent greet`."""

from agent.errors import TooWarm

DESCRIPTION = "Greets."


def add_options(parser):
    parser.add_argument("name")


def run(args):
    if args.name != "world":
        raise TooWarm(args.name, "open a window")
    return print(f"hello {args.name}") or 7
'''
SETTING_ROW = '    Setting("A4_SONG", choice("none", "loud"), "none", "what the pods sing"),\n'
EXIT_CODE = '''\
class TooWarm(AgentError):
    """A node is too warm to work on."""

    code = Exit.TOO_WARM


'''
FIELD = '''\
    heat: Annotated[int, ("minimum", 0)] = 0
    """°C of the warmest GPU"""


'''


class Copy:
    """A copy of the package with something added."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for part in ("agent", "chart", "entrypoints", "env", "scripts"):
            shutil.copytree(CHECKOUT / part, directory / part, ignore=shutil.ignore_patterns("__pycache__"))

    def insert(self, path: str, before: str, text: str) -> None:
        old = (self.directory / path).read_text()
        assert old.count(before) == 1, f"{path} has {old.count(before)} times {before!r}: this test has to follow it"
        (self.directory / path).write_text(old.replace(before, text + before))

    def written(self) -> list[str]:
        """Files of code and chart that somebody has added or changed."""
        found = []
        for part in ("agent", "chart", "entrypoints", "env"):
            for path in (self.directory / part).rglob("*"):
                name = path.relative_to(self.directory)
                before = CHECKOUT / name
                if path.is_file() and not (before.exists() and filecmp.cmp(path, before, shallow=False)):
                    found.append(name.as_posix())
        return sorted(found)

    def agent(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "agent", *words, **environ)

    def enum(self, part: str, name: str) -> list[str | None]:
        """What the chart's schema takes there, once the script has given the chart all names."""
        done = self.python("-m", "scripts.chart_names")
        assert done.returncode == 0, done.stderr
        schema = json.loads((self.directory / "chart/values.schema.json").read_text())
        known: list[str | None] = schema["properties"][part]["properties"][name]["enum"]
        return known

    def python(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, *words]
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environ}
        return subprocess.run(argv, cwd=self.directory, env=env, capture_output=True, text=True, timeout=DEADLINE)


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


@pytest.fixture
def hello(copy: Copy) -> Copy:
    """With one room and one row."""
    (copy.directory / "agent/workloads/hello.py").write_text(WORKLOAD)
    copy.insert("agent/catalogue.py", '    "script": Entry(', WORKLOAD_ROW)
    return copy


def test_a_workload_is_known_everywhere(hello: Copy) -> None:
    assert ["hello", "every pod prints its rank"] in [
        line.split(maxsplit=1) for line in hello.agent("run", "--help").stdout.splitlines()
    ]
    offered = hello.agent("completion", "words", "--", "run", "he").stdout
    assert offered.split("\t")[0].split() == ["hello"]
    known = ", ".join([*catalogue.RUNNABLE[:-1], "hello", "script"])
    pod = {"NNODES": "1", "JOB_COMPLETION_INDEX": "0"}
    assert f"one of {known}" in hello.agent("settings", A4_WORKLOAD="hallo", **pod).stderr
    assert hello.written() == ["agent/catalogue.py", "agent/workloads/hello.py"]
    assert hello.enum("workload", "run").count("hello") == 1


@needs_root
def test_a_workload_runs_and_has_a_result(hello: Copy) -> None:
    name = f"hello-{os.getpid()}"
    up = hello.agent("local", "up", "--pods", "2", "--name", name, "--wait", "none")
    try:
        assert up.returncode == 0, up.stderr
        until_asleep(name)
        pod = ("local", "exec", "0", "--name", name, "--")
        done = hello.agent(*pod, "a4-agent", "run", "hello")
        assert done.returncode == 0, done.stderr
        assert {"hello from rank 0", "hello from rank 1"} <= set(done.stdout.splitlines())
        shown = hello.agent(*pod, "sh", "-c", "cat /run/a4-agent/runs/hello-*/result.json")
        result = json.loads(shown.stdout)
    finally:
        down = hello.agent("local", "down", "--name", name)
    assert (result["workload"], result["verdict"]["status"]) == ("hello", "passed")
    assert down.returncode == 0, down.stderr


def test_a_fabric_is_known_everywhere(copy: Copy) -> None:
    (copy.directory / "agent/fabrics/a5_test.py").write_text(FABRIC)
    (copy.directory / "env/a5-test.env").write_text("# because\nNCCL_NET=A5\n")
    modules = "a3_tcpx, a4_deepep, a4_gib"
    copy.insert("agent/fabrics/__init__.py", f"{modules})}}", "a5_test, ")
    copy.insert("agent/fabrics/__init__.py", f"{modules}\n", "a5_test, ")
    shown = copy.agent("env", "--profile", "a5-test")
    assert (shown.returncode, re.findall(r"NCCL_NET +A5", shown.stdout)) == (0, ["NCCL_NET  A5"]), shown.stderr
    pod = {"NNODES": "1", "JOB_COMPLETION_INDEX": "0", "A4_PROFILE": "a5-testt"}
    assert "a4-gib, a4-deepep, a3-tcpx, a5-test" in copy.agent("settings", **pod).stderr
    code = "from agent.fabrics import problems; print(problems('a5-test', {}, 2))"
    assert copy.python("-c", code).stdout == "['no A5 here']\n"
    assert copy.written() == ["agent/fabrics/__init__.py", "agent/fabrics/a5_test.py", "env/a5-test.env"]
    assert copy.enum("network", "profile") == ["auto", "a4-gib", "a4-deepep", "a3-tcpx", "a5-test", "none", "", None]


def test_a_setting_is_a_row_and_a_field(copy: Copy) -> None:
    copy.insert("agent/settings.py", '    Setting("A4_LOG_LEVEL"', SETTING_ROW)
    copy.insert("agent/settings.py", "    log_level: str\n", "    song: str\n")
    code = "import os, agent; print(agent.read_settings(os.environ, agent.Found())[0].song)"
    pod = {"NNODES": "1", "JOB_COMPLETION_INDEX": "0", "A4_SONG": "loud"}
    assert copy.python("-c", code, **pod).stdout == "loud\n"
    assert (
        "A4_SONG='soft' (environment) should be one of none, loud"
        in copy.agent("settings", **{**pod, "A4_SONG": "soft"}).stderr
    )
    assert copy.written() == ["agent/settings.py"]


def test_a_verb_is_one_file_and_one_row_and_an_exit_code_a_name_and_a_class(copy: Copy) -> None:
    copy.insert("agent/errors.py", "    TIME_LIMIT = 124\n", "    TOO_WARM = 99\n")
    copy.insert("agent/errors.py", "class SettingsError(", EXIT_CODE)
    (copy.directory / "agent/commands/greet.py").write_text(VERB)
    copy.insert("agent/commands/__init__.py", '        "report": ', '        "greet": "say hello",\n')
    done = copy.agent("greet", "world")
    assert (done.returncode, done.stdout) == (7, "hello world\n")
    warm = copy.agent("greet", "node-7")
    assert (warm.returncode, "node-7\n  open a window" in warm.stderr) == (99, True), warm.stderr
    assert "Greets." in copy.agent("greet", "--help").stdout
    assert "say hello" in copy.agent("--help").stdout
    assert copy.written() == ["agent/commands/__init__.py", "agent/commands/greet.py", "agent/errors.py"]


def test_a_field_of_a_result_has_a_default(copy: Copy) -> None:
    """An old result is read, and the schema has the field."""
    copy.insert("agent/decide/result.py", "def verdict(", FIELD)
    (copy.directory / "docs").mkdir()
    assert copy.python("-m", "scripts.result_schema").returncode == 0
    schema = json.loads((copy.directory / "docs/result.schema.json").read_text())
    assert "heat" in schema["properties"] and "heat" not in schema["required"]
    old = CHECKOUT / "tests/report/old/f8e3d16-none.json"
    done = copy.agent("report", str(old), "-o", "-")
    assert done.returncode == 0 and done.stdout.startswith("<!doctype html>"), done.stderr

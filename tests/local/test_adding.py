"""What CONTRIBUTING says of adding a workload, a fabric or a verb, done in a copy of the package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent import catalogue
from tests.local.helpers import CHECKOUT, DEADLINE, needs_root, until_asleep

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
        return Judgement(end_without_failure(outcome, "hello"))
'''
WORKLOAD_ROW = '    "hello": Entry("agent.workloads.hello", "Hello", "every pod prints its rank"),\n'
FABRIC = '''\
"""A fabric of the test."""

from agent.fabrics.fabric import Fabric, Needs

FABRIC = Fabric("a5-test", "/opt/a5", "A5", lambda environ: Needs(["libnccl.so.2"]), lambda inventory: ["no A5 here"])
'''
VERB = '''\
"""`a4-agent greet`."""

DESCRIPTION = "Greets."


def add_options(parser):
    parser.add_argument("name")


def run(args):
    return print(f"hello {args.name}") or 7
'''


class Copy:
    """A copy of the package with something added."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for part in ("agent", "entrypoints", "env"):
            shutil.copytree(CHECKOUT / part, directory / part, ignore=shutil.ignore_patterns("__pycache__"))

    def insert(self, path: str, before: str, text: str) -> None:
        old = (self.directory / path).read_text()
        assert old.count(before) == 1
        (self.directory / path).write_text(old.replace(before, text + before))

    def agent(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "agent", *words, **environ)

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
    copy.insert("agent/fabrics/__init__.py", "a3_tcpx, a4_deepep, a4_gib)}", "a5_test, ")
    copy.insert("agent/fabrics/__init__.py", "a3_tcpx, a4_deepep, a4_gib\n", "a5_test, ")
    shown = copy.agent("env", "--profile", "a5-test")
    assert (shown.returncode, re.findall(r"NCCL_NET +A5", shown.stdout)) == (0, ["NCCL_NET  A5"]), shown.stderr
    pod = {"NNODES": "1", "JOB_COMPLETION_INDEX": "0", "A4_PROFILE": "a5-testt"}
    assert "a4-gib, a4-deepep, a3-tcpx, a5-test" in copy.agent("settings", **pod).stderr
    code = "from agent.fabrics import problems; print(problems('a5-test', {}, 2))"
    assert copy.python("-c", code).stdout == "['no A5 here']\n"


def test_a_verb_is_one_file_and_one_row(copy: Copy) -> None:
    (copy.directory / "agent/commands/greet.py").write_text(VERB)
    copy.insert("agent/commands/__init__.py", '    "version": ', '    "greet": "say hello",\n')
    done = copy.agent("greet", "world")
    assert (done.returncode, done.stdout) == (7, "hello world\n")
    assert "Greets." in copy.agent("greet", "--help").stdout
    assert "say hello" in copy.agent("--help").stdout

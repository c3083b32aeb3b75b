"""`a4-agent local run --dry-run`: what the pods of a cluster would start, and no cluster is made."""

from __future__ import annotations

import json
import os
import sys

import pytest

from agent.catalogue import RUNNABLE
from agent.workbench.local.client import LocalCluster
from agent.workbench.local.sockets import running_clusters
from agent.workloads import find_workload
from tests.workbench.local.helpers import DEADLINE, needs_root
from tests.workbench.local.test_command import fresh_name, local, refused

AGENT = [sys.executable, "-m", "agent"]


@needs_root
def test_it_says_what_the_pods_would_say(capfd: pytest.CaptureFixture[str]) -> None:
    """In a cluster whose order by place is not that of the indices. What mpirun forwards differs with the shell."""
    words = ["--pods", "4", "--gpus-per-pod", "8", "--name", fresh_name("dry")]
    workloads = [name for name in RUNNABLE if name != "script" and not find_workload(name).led]
    before = {name: refused(["run", *words, "--dry-run", name], capfd)[1] for name in workloads}
    assert words[-1] not in running_clusters()
    try:
        assert local("up", *words, "--wait", "none").returncode == 0
        cluster = LocalCluster.attach(words[-1])
        for name in workloads:
            said = cluster.exec(0, [*AGENT, "run", "--dry-run", name], timeout=DEADLINE)
            assert (said.returncode, before[name]) == (0, said.stdout), name
    finally:
        local("down", "--name", words[-1], "--grace", "0")


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["script"], 66, "no task script is mounted"),
        (["--gpus-per-pod", "4", "deepep"], 78, "deepep needs 8 GPUs in every pod"),
        (["--env", "A4_SSH_PORT=x", "none"], 78, "A4_SSH_PORT='x' (environment) should be"),
        (["--env", "MP_TP=3", "pai-megatron-qwen3"], 78, "TP 3 × PP 2 × CP 1 = 6 does not divide 16 GPUs"),
    ],
)
def test_what_the_run_would_be_refused_for(
    words: list[str], code: int, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    found, shown, said = refused(["run", "--pods", "2", "--dry-run", *words], capfd)
    assert (found, shown, text in said) == (code, "", True), said


def test_secrets_are_hidden_and_variables_of_a_pod_count() -> None:
    given = ["--env", "HF_TOKEN=hf_abcdefghij", "--env", "A4_WORKLOAD=pai-megatron-qwen3", "--pod-env", "0:MP_LR=3e-5"]
    result = local("run", "--pods", "2", *given, "--dry-run")
    assert result.returncode == 0, result.stderr
    assert "LR                        3e-5" in result.stdout and "hf_abcdefghij" not in result.stdout


def test_a_task_script_is_where_the_pods_find_it() -> None:
    result = local("run", "--pods", "1", "--task-script", os.devnull, "--dry-run")
    assert result.stdout.splitlines()[-1] == "  bash /workload/task/task-script.sh"


def test_as_json() -> None:
    text, answer = (local("run", "--pods", "2", *words, "--dry-run", "ddp").stdout for words in ([], ["--json"]))
    assert json.loads(answer) == {"version": 1, "workload": "ddp", "text": text}

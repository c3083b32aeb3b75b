"""`--dry-run`: what would be started, and nothing is."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from agent.decide.plan import Plan, PlannedPeer
from agent.machine.inventory import interfaces
from tests.commands.conftest import POD, Call

pytestmark = pytest.mark.skipif(not interfaces(), reason="needs a network interface")
needs_mpirun = pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs mpirun")
ORDER = (0, 2, 1)
PLAN = Plan("uid.0.0", 2, tuple(PlannedPeer(i, f"job-0-{i}.local", f"10.0.0.{i}", f"node-{i}") for i in ORDER))


@pytest.fixture
def pod(tmp_path: Path) -> dict[str, str]:
    """Variables of pod 1 of 3, before there is an agent."""
    (tmp_path / "secret").write_text("0123456789abcdef" * 2 + "\n")
    return {**POD, "A4_SECRET_FILE": str(tmp_path / "secret"), "HF_TOKEN": "hf_abcdefghij"}


@pytest.fixture
def planned(tmp_path: Path, pod: dict[str, str]) -> dict[str, str]:
    """The same when an agent has left a plan in which pod 2 is before pod 1, and pod 2 is lost."""
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "plan.json").write_text(json.dumps(PLAN.to_json()))
    lost = {"2": {"why": "not heard for 30 s", "since": 0.0}}
    (directory / "state.json").write_text(json.dumps({"phase": "sleeping", "index": 1, "lost": lost}))
    return pod


def test_nothing_is_touched(pod: dict[str, str], tmp_path: Path, call_command: Call) -> None:
    code, out, err = call_command("run", "none", "--dry-run", env=pod)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "# none on 3 of 3 pods: 0-2",
        "# no plan yet: pods in index order, as a guess",
        "# nothing is started: only the cluster is formed",
    ]
    assert sorted(os.listdir(tmp_path)) == ["secret"]


@needs_mpirun
def test_an_mpi_run(pod: dict[str, str], call_command: Call) -> None:
    code, out, err = call_command("run", "connectivity", "--dry-run", "--", "--sizes", "8", env=pod)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert "# pod 0 (with the programs and variables of this pod):" in lines
    assert lines[-1] == "# pods 1-2: nothing is started, mpirun reaches them through sshd"
    assert lines[-2].split()[0].endswith("mpirun")
    assert " -np 12 " in lines[-2] and lines[-2].endswith("--sizes 8")


@needs_mpirun
def test_ones_own_mpi_program(planned: dict[str, str], call_command: Call) -> None:
    argv = ["mpirun", "--dry-run", "-np", "3", "--exclude", "2", "./a.out", "hf_abcdefghij"]
    code, out, err = call_command(*argv, env=planned)
    assert (code, err) == (0, "")
    assert "# mpirun on 2 of 3 pods: 0-1\n" in out
    assert " -np 3 " in out
    assert "./a.out ***\n" in out
    assert "hf_abcdefghij" not in out


def test_torchrun(planned: dict[str, str], call_command: Call) -> None:
    argv = ["torchrun", "--dry-run", "--hosts", "0,1", "--", "train.py", "--lr", "1"]
    code, out, err = call_command(*argv, env=planned)
    assert (code, err) == (0, "")
    assert "# pod 0:\n" in out and "# pod 1:\n" in out
    assert out.count("train.py --lr 1\n") == 2


def test_exec_hides_a_secret_however_it_is_quoted(planned: dict[str, str], call_command: Call) -> None:
    planned["HF_TOKEN"] = 'it\'s a\n"secret" of $5'
    argv = ["exec", "--dry-run", "--nodes", "1", "echo", "-f", f"--token={planned['HF_TOKEN']}"]
    code, out, err = call_command(*argv, env=planned)
    assert (code, err) == (0, "")
    assert out.startswith("# exec on 1 of 3 pods: 0\n")
    assert out.endswith(" echo -f '--token=***'\n")
    assert "secret" not in out


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        ("exec --dry-run hostname", 75, "pod name not known, node node-2: not heard for 30 s)"),
        ("exec --dry-run --hosts 7 hostname", 2, "--hosts '7' matches no pod"),
        ("run --dry-run --exclude 2 script", 66, "no task script is mounted"),
        ("run --dry-run pai-megatron", 78, "A4_WORKLOAD='pai-megatron' (command line) should be one of none, "),
    ],
)
def test_why_it_would_be_refused(argv: str, code: int, words: str, planned: dict[str, str], call_command: Call) -> None:
    ended, out, err = call_command(*argv.split(), env=planned)
    assert (ended, out) == (code, "")
    assert words in err


@needs_mpirun
def test_every_command_of_nccl_with_the_profile_of_the_pod(
    planned: dict[str, str], tmp_path: Path, call_command: Call
) -> None:
    record = {"version": 1, "profile": "a3-tcpx", "why": "it is", "changes": {}, "sources": {}, "overruled": []}
    (tmp_path / "run" / "environment.json").write_text(json.dumps(record))
    words = ("run", "--dry-run", "--exclude", "2", "nccl", "--", "--repeat", "2")
    code, out, err = call_command(*words, env=planned)
    assert (code, err) == (0, "")
    lines = [line for line in out.splitlines() if "mpirun --allow-run-as-root" in line]
    assert len(lines) == 2 and "connectivity.py" in lines[0] and "steps.py" not in out
    assert lines[1].endswith(f" all_gather {tmp_path}/run/runs/RUN-ID/notes -b 1M -e 512M -f 2 -g 1 -n 100 -w 5"), out
    assert "taskset -c 0-7,104-111,52-59,156-163 sh " in lines[1]
    assert out.count("# 2 times: all_gather to all_gather-2\n") == 1

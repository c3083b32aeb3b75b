"""What a program finds around it in a pod."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent.decide.facts import Facts
from agent.decide.plan import Plan, PlannedPeer
from agent.environment import find_mpi, job_from_environment, read_facts, read_plan, serve
from agent.errors import ClusterBusy, MissingProgram, PeersMissing, SettingsError, SystemFault
from agent.machine.files import take_lock
from agent.paths import RunDir

ROOT = Path(__file__).parents[1]
SECRET = b"0123456789abcdef0123456789abcdef\n"
FACTS = Facts(1, "", "0.1.0", "node-1", "10.0.0.1", "eth0", 8, places={"A4_LOCATION": ("a", "b")})
PLAN = Plan("try", 8, (PlannedPeer(0, "p0", "10.0.0.0", "node-0"), PlannedPeer(1, "p1", "10.0.0.1", "node-1", ("a",))))


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The environment of pod 1 of two."""
    (tmp_path / "secret").write_bytes(SECRET)
    return {
        "NNODES": "2",
        "JOB_COMPLETION_INDEX": "1",
        "HOSTNAME_PREFIX": "job-workload-",
        "DOMAIN_NAME": "job.default.svc.cluster.local",
        "A4_EPOCH": "try",
        "A4_SECRET_FILE": str(tmp_path / "secret"),
        "A4_RUN_DIR": str(tmp_path / "run"),
        "HF_TOKEN": "hf_abcdefghijklmnop",
    }


def test_a_job_is_what_the_environment_says(environ: dict[str, str]) -> None:
    job = job_from_environment(environ=environ)
    assert (job.settings.index, job.spec.workload, job.spec.args) == (1, "none", ())
    assert job.secret == SECRET
    assert job.environ == environ
    assert job.warnings == ()


def test_the_workload_that_is_named_goes_first(environ: dict[str, str]) -> None:
    job = job_from_environment("script", ["fast"], environ={**environ, "A4_WORKLOAD": "connectivity"})
    assert (job.settings.workload, job.spec.workload, job.spec.args) == ("script", "script", ("fast",))


def test_a_job_shows_no_secret(environ: dict[str, str]) -> None:
    shown = repr(job_from_environment(environ=environ))
    assert "0123456789" not in shown and "hf_abc" not in shown


def test_all_that_is_wrong_is_raised(environ: dict[str, str]) -> None:
    with pytest.raises(SettingsError) as raised:
        job_from_environment(environ={**environ, "A4_SSH_PORT": "x", "A4_SECRET_FILE": "/no/such/file"})
    assert len(raised.value.problems) == 2


def test_one_agent_lives_in_a_pod(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(0o700)
    assert take_lock(str(tmp_path / "run/lock")) == ""
    with pytest.raises(ClusterBusy, match="in this pod"):
        serve(job_from_environment(environ=environ))


def test_plan_and_facts_are_read(tmp_path: Path) -> None:
    directory = RunDir(str(tmp_path))
    Path(directory.plan).write_text(json.dumps(PLAN.to_json()))
    Path(directory.facts).write_text(json.dumps(FACTS.to_json()))
    assert (read_plan(directory.path), read_facts(directory.path)) == (PLAN, FACTS)


def test_the_run_directory_of_the_pod_is_the_default(tmp_path: Path) -> None:
    Path(RunDir(str(tmp_path)).plan).write_text(json.dumps(PLAN.to_json()))
    code = "import agent; print(agent.read_plan().epoch); agent.Client()"
    env = {"A4_RUN_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout == "try\n"
    assert f"nobody listens at {tmp_path}/agent.sock" in done.stderr


def test_before_the_cluster_is_formed_there_is_neither(tmp_path: Path) -> None:
    with pytest.raises(PeersMissing, match="no a4-agent has run"):
        read_plan(str(tmp_path))
    with pytest.raises(PeersMissing, match="no facts"):
        read_facts(str(tmp_path))
    Path(RunDir(str(tmp_path)).state).write_text('{"phase": "waiting"}')
    with pytest.raises(PeersMissing, match="a4-agent status shows"):
        read_plan(str(tmp_path))


def test_what_is_damaged_is_said(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"version": 0}', '{"index": 1}', '{"version": 1}'):
        for name, read in (("plan", read_plan), ("facts", read_facts)):
            (tmp_path / f"{name}.json").write_text(text)
            with pytest.raises(SystemFault, match="is damaged"):
                read(str(tmp_path))


def test_the_mpirun_of_the_path_is_found(tmp_path: Path) -> None:
    """Or what is wrong with it; more of that: tests/decide/test_mpirun.py."""
    with pytest.raises(MissingProgram, match="not on PATH"):
        find_mpi(str(tmp_path))
    program = tmp_path / "mpirun"
    program.touch(0o755)
    program.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 3.1.4'\n")
    with pytest.raises(MissingProgram, match=r"is Open MPI 3\.1\.4"):
        find_mpi(str(tmp_path))
    program.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 5.0.11'\n")
    mpi = find_mpi(str(tmp_path))
    assert (mpi.program, str(mpi.version)) == (str(program), "5.0.11")

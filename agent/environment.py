"""What a program finds around it in a pod: settings, facts, plan, mpirun. And how it becomes the resident agent."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from agent.decide.facts import Facts
from agent.decide.plan import Plan
from agent.decide.runspec import RunSpec
from agent.decide.secret_variables import secret_values
from agent.errors import MissingProgram, PeersMissing, SystemFault
from agent.log import Log
from agent.machine import files
from agent.machine.files import read_secret
from agent.mounts import parse_mounts
from agent.paths import SECRET_FILE, RunDir
from agent.settings import BUCKET, TASK_SCRIPTS, Found, Settings, read_settings

if TYPE_CHECKING:
    from agent.decide.mpirun import Mpi
    from agent.lifecycle.pod.pod import Job

T = TypeVar("T")
NO_AGENT = "no a4-agent has run in this pod yet"


def job_from_environment(
    workload: str = "", args: Sequence[str] = (), *, environ: Mapping[str, str] | None = None
) -> Job:
    """The job that this pod is part of. Its first run is `workload` with `args`, by default what A4_WORKLOAD says.

    `environ`: in place of this process's environment. Raises SettingsError that lists everything that is wrong.
    """
    environ = dict(os.environ if environ is None else environ)
    found, secret = look(environ)
    settings, warnings = read_settings(environ, found, workload)
    from agent.lifecycle.pod.pod import Job

    return Job(
        settings=settings,
        environ=environ,
        secret=secret,
        python=sys.executable,
        spec=RunSpec(settings.workload, tuple(args), by="ENTRYPOINT", name=settings.run_name),
        started=time.monotonic(),
        warnings=warnings,
    )


def serve(job: Job) -> int:
    """Live this pod's life as its resident agent, to the exit code that the pod is to end with.

    Forms the cluster, takes part in its runs, and returns when the job is over. What goes wrong with the job ends it on
    every pod, and is said in the log and in that code. Once in a process, in its main thread, whose signals
    (docs/exit-codes.md#signals) are the agent's from then on. Raises ClusterBusy when an agent lives in this pod
    already, SystemFault when the run directory cannot be had.
    """
    from agent.lifecycle.serve import serve as live

    return live(job, log_for(job.settings, job.environ, job.secret))


def look(environ: Mapping[str, str]) -> tuple[Found, bytes]:
    """What the settings depend on, and the job's secret (empty when there is none to be had)."""
    script = next((path for path in TASK_SCRIPTS if os.path.exists(path)), "")
    # Not by a look at the directory itself: a bucket that hangs must not hold us.
    bucket = any(mount.point == BUCKET for mount in parse_mounts(files.read("/proc/self/mountinfo") or ""))
    try:
        secret = read_secret(environ.get("A4_SECRET_FILE") or SECRET_FILE)
    except ValueError as error:
        return Found(script, str(error), bucket), b""
    return Found(script, bucket=bucket), secret


def log_for(settings: Settings, environ: Mapping[str, str], secret: bytes) -> Log:
    """The log of this pod's agent: labelled, and blind to secrets."""
    log = Log(settings.log_level, settings.log_format, secrets=secrets_of(settings, environ, secret))
    log.labels = {"pod": f"{settings.index}/{settings.nnodes}", "job": settings.job_identifier}
    log.place = {"pod_name": settings.pod_name, "node": settings.node_name, "epoch": settings.epoch}
    return log


def secrets_of(settings: Settings, environ: Mapping[str, str], secret: bytes) -> set[str]:
    """What the agent of this pod never shows; `secret`: the job's."""
    # Whoever prints the secret may leave out the newline at its end.
    text = secret.decode(errors="replace").strip()
    return secret_values(environ, settings.secret_env.split()) | ({text} if text else set())


def read_plan(run_dir: str = "") -> Plan:
    """The plan that this pod has. `run_dir`: by default A4_RUN_DIR.

    Raises PeersMissing while the cluster is not formed, SystemFault when the plan cannot be read.
    """
    directory = RunDir(run_dir)
    plan = find_plan(directory)
    if plan is not None:
        return plan
    hint = "a4-agent status shows what this pod waits for" if load(directory.state) else NO_AGENT
    raise PeersMissing("there is no plan yet: the cluster is not formed", hint)


def find_plan(directory: RunDir) -> Plan | None:
    """The plan that this pod has; None before there is one."""
    return stored(directory.plan, Plan.from_json)


def read_facts(run_dir: str = "") -> Facts:
    """What the agent of this pod knows of it: index, address, interface and the like. `run_dir`: by default A4_RUN_DIR.

    Raises PeersMissing before there are facts, SystemFault when they cannot be read.
    """

    facts = stored(RunDir(run_dir).facts, Facts.from_json)
    if facts is None:
        raise PeersMissing("there are no facts of this pod yet", NO_AGENT)
    return facts


def find_mpi(path: str = "") -> Mpi:
    """Open MPI's mpirun on the search path `path`, by default PATH. Raises MissingProgram when none can be used."""

    from agent.decide.mpirun import mpi_of
    from agent.machine import versions

    mpi = mpi_of(versions.mpi(path or os.environ.get("PATH") or os.defpath))
    if mpi is None or mpi.problem:
        raise MissingProgram(mpi.problem if mpi else "cannot determine mpirun's version", "Open MPI 4 or 5 is needed")
    return mpi


def stored(path: str, from_json: Callable[[dict[str, Any]], T]) -> T | None:
    """What a file of the agent's state describes; None when there is none. Raises SystemFault for a damaged one."""
    data = load(path)
    try:
        return from_json(data) if data else None
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, error) from error


def load(path: str) -> dict[str, Any] | None:
    """A file of the agent's state; None when there is none. Raises SystemFault when it cannot be read."""
    try:
        text = files.read(path)
        data = json.loads(text) if text else None
    except PermissionError as error:
        raise SystemFault(f"{path} cannot be read: only root can ask the agent") from error
    except ValueError as error:
        raise _damaged(path, error) from error
    if data is not None and not isinstance(data, dict):
        raise _damaged(path, "it is not a JSON object")
    return data


def _damaged(path: str, why: object) -> SystemFault:
    return SystemFault(f"{path} is damaged: {why}", "the next start of the agent rewrites it")

"""What several verbs need to know of the pod they run in."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent.decide.masking import secret_values
from agent.decide.peers import peer_name
from agent.decide.plan import Plan, PlannedPeer
from agent.decide.runspec import RunSpec
from agent.decide.shell_env import travelling
from agent.errors import PeersMissing, SystemFault
from agent.log import Log
from agent.machine import files
from agent.machine.secret import read_secret
from agent.paths import DEFAULT_RUN_DIR, RunDir
from agent.settings import BUCKET, TASK_SCRIPTS, Found, Settings

if TYPE_CHECKING:
    from agent.client import Client


def look(environ: Mapping[str, str]) -> tuple[Found, bytes]:
    """What the settings depend on, and the job's secret (empty when there is none to be had)."""
    script = next((path for path in TASK_SCRIPTS if os.path.exists(path)), "")
    bucket = _is_mounted(BUCKET)
    try:
        secret = read_secret(environ.get("A4_SECRET_FILE") or "/etc/a4-agent/secret/job-secret")
    except ValueError as error:
        return Found(script, str(error), bucket), b""
    return Found(script, bucket=bucket), secret


def _is_mounted(path: str) -> bool:
    """Does not look at the directory itself: a bucket that hangs must not hold us."""
    mounts = files.read("/proc/self/mountinfo") or ""
    return any(line.split(" ")[4:5] == [path] for line in mounts.splitlines())


def log_for(settings: Settings, environ: Mapping[str, str], secret: bytes) -> Log:
    """The log of this pod's agent: labelled, and blind to secrets."""
    # Whoever prints the secret may leave out the newline at its end.
    text = secret.decode(errors="replace").strip()
    secrets = secret_values(environ) | ({text} if text else set())
    log = Log(settings.log_level, settings.log_format, secrets=secrets)
    log.labels = {"pod": f"{settings.index}/{settings.nnodes}", "job": settings.job_identifier}
    return log


def run_dir() -> RunDir:
    return RunDir(os.environ.get("A4_RUN_DIR") or DEFAULT_RUN_DIR)


def read_state(directory: RunDir) -> dict[str, Any] | None:
    """What the agent of this pod wrote of itself; None when none has been started here."""
    return _load(directory.state)


def read_plan(directory: RunDir) -> Plan | None:
    """The plan that this pod has; None before there is one."""
    data = _load(directory.plan)
    try:
        return Plan.from_json(data) if data else None
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(directory.plan, error) from error


def need_plan(directory: RunDir) -> Plan:
    """Raises PeersMissing when the cluster is not formed."""
    plan = read_plan(directory)
    if plan is not None:
        return plan
    state = read_state(directory)
    hint = "a4-agent status shows what this pod waits for" if state else "no a4-agent has run in this pod yet"
    raise PeersMissing("there is no plan yet: the cluster is not formed", hint)


def guessed_plan(settings: Settings) -> Plan:
    """In index order, without places: while there is no plan, or none is wanted."""
    peers = tuple(
        PlannedPeer(index, peer_name(settings.hostname_prefix, index, settings.domain_name), "", "")
        for index in range(settings.nnodes)
    )
    return Plan(settings.epoch, settings.gpus_per_node, peers)


def agent_environment(directory: RunDir) -> dict[str, str]:
    """What the agent of this pod was started with; empty when there is none, or it is not ours to read."""
    holder = re.match(r"pid (\d+) ", _readable(directory.lock))
    return process_environment(int(holder[1])) if holder else {}


def process_environment(pid: int) -> dict[str, str]:
    """Empty when there is no such process, or it is not ours to read."""
    pairs = (entry.partition("=") for entry in _readable(f"/proc/{pid}/environ").split("\0"))
    return {name: value for name, found, value in pairs if found and name}


def of_caller(spec: RunSpec, directory: RunDir) -> RunSpec:
    """`spec` with whose wish it is, and with the variables that were set in this shell."""
    agent = agent_environment(directory)
    env = travelling(os.environ, agent, process_environment(1)) if agent else {}
    state = read_state(directory) or {}
    return replace(spec, env=env, by=f"pod {state.get('index', '?')} (pid {os.getpid()})")


def living(directory: RunDir) -> Client | None:
    """The agent that lives in this pod, if one does. Raises SystemFault for who may not ask it."""
    from agent.client import Client

    try:
        return Client(directory.path)
    except PeersMissing:
        return None


def _readable(path: str) -> str:
    try:
        return files.read(path) or ""
    except OSError:
        return ""


def _load(path: str) -> dict[str, Any] | None:
    try:
        text = files.read(path)
        data = json.loads(text) if text else None
    except PermissionError as error:
        raise SystemFault(f"{path} cannot be read: only root can ask the agent") from error
    except ValueError as error:
        raise _damaged(path, error) from error
    if data is not None and not isinstance(data, dict):
        raise _damaged(path, "it is no JSON object")
    return data


def _damaged(path: str, why: object) -> SystemFault:
    return SystemFault(f"{path} is damaged: {why}", "the next start of the agent writes it anew")

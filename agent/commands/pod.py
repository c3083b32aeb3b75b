"""What several verbs need to know of the pod they run in."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from agent.decide.plan import Plan
from agent.errors import PeersMissing, SystemFault
from agent.log import Log, secret_values
from agent.machine import files
from agent.machine.secret import read_secret
from agent.paths import DEFAULT_RUN_DIR, RunDir
from agent.settings import TASK_SCRIPTS, Found, Settings


def look(environ: Mapping[str, str]) -> tuple[Found, bytes]:
    """What the settings depend on, and the job's secret (empty when there is none to be had)."""
    script = next((path for path in TASK_SCRIPTS if os.path.exists(path)), "")
    try:
        secret = read_secret(environ.get("A4_SECRET_FILE") or "/etc/a4-agent/secret/job-secret")
    except ValueError as error:
        return Found(script, str(error)), b""
    return Found(script), secret


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

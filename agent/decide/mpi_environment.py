"""Which variables of the launch environment MPI ranks get, and which they must not.

mpirun starts a rank of another pod from that pod's own SSH session, so every variable that a rank shall
have is forwarded by name (`-x NAME`). Values never stand on a command line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

# Why ranks do not get them: names or, with a star at the end, beginnings of names.
_REASONS = {
    "names the pod or node that mpirun runs on, not the rank's": "HOSTNAME",
    "follows the rank's working directory, which mpirun sets": "PWD",
    "belongs to one shell": "OLDPWD SHLVL _",
    "ranks have no terminal": "TERM COLUMNS LINES",
    "one login's addresses, terminal and agent; and SSH_PUBLIC_KEY is of no use to a rank": "SSH_*",
    "Kubernetes' own service addresses": "KUBERNETES_*",
    "differs from pod to pod: ranks would all see the coordinator's": "JOB_COMPLETION_INDEX",
    "differs from pod to pod": "POD_IP POD_NAME POD_UID NODE_NAME HOST_IP A4_LOCATION",
    "a torchrun variable: MPI ranks have OMPI_COMM_WORLD_RANK, a workload that wants RANK sets it": "RANK",
    "a torchrun variable: MPI ranks have OMPI_COMM_WORLD_LOCAL_RANK": "LOCAL_RANK",
    "path of the job's secret": "A4_SECRET_FILE",
    "for the agent, which has already applied it": "A4_USER_ENV",
    "for the agent, which masks what it names": "A4_SECRET_ENV",
    "internal to another MPI launcher": "PMI_*",
    "internal to one mpirun": "PMIX_* ORTE_*",
    "internal to one mpirun; PRRTE copies PRTE_MCA_* values to remote command lines": "PRTE_*",
    "internal to one mpirun; OMPI_MCA_* for MPI itself is kept": "OMPI_*",
    "would change how mpirun runs, for example its time limit": "MPIEXEC_*",
    "shell functions are no variables": "BASH_FUNC_*",
    "each remote shell would run this file first": "BASH_ENV ENV",
    "one process's sockets": "LISTEN_*",
    "one process's socket": "NOTIFY_SOCKET",
    "one systemd unit's": "INVOCATION_ID",
}
DENIED = {name: reason for reason, names in _REASONS.items() for name in names.split()}

# Parameters of Open MPI's launcher (frameworks of ORTE and PRRTE): the agent sets these itself, and a stray
# one of the image would change hosts, mapping or the ssh command.
LAUNCHER_FRAMEWORKS = (
    "orte", "prte", "plm", "pls", "ess", "errmgr", "filem", "grpcomm", "iof", "odls", "oob", "ras", "regx",
    "rmaps", "rml", "routed", "rtc", "schizo", "sensor", "snapc", "sstore", "state", "dfs", "notifier",
)  # fmt: skip

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEPT_MCA = "OMPI_MCA_"


class RankEnvironment(NamedTuple):
    """What ranks get. `env` also is mpirun's own environment, so that local and remote ranks agree."""

    env: dict[str, str]
    """Every variable that a rank shall have."""
    names: list[str]
    """The names for `-x`, sorted. OMPI_* is not among them: Open MPI forwards that by itself."""
    refused: dict[str, str]
    """Variables that `-x` cannot carry, with the reason: worth a warning."""
    denied: dict[str, str]
    """Variables left out on purpose, with the reason."""


def rank_environment(env: Mapping[str, str]) -> RankEnvironment:
    """Split the launch environment into what ranks get and what they do not. Applying it twice is harmless."""
    denied = {name: reason for name in env if (reason := denial(name))}
    refused = {name: reason for name in env if name not in denied and (reason := refusal(name, env[name]))}
    kept = {name: value for name, value in env.items() if name not in denied and name not in refused}
    names = sorted(name for name in kept if not name.startswith(_KEPT_MCA))
    return RankEnvironment(kept, names, refused, denied)


def denial(name: str) -> str:
    """Why ranks do not get this variable; empty when they do."""
    if name.startswith(_KEPT_MCA):
        parameter = name[len(_KEPT_MCA) :]
        of_launcher = parameter.split("_")[0] in LAUNCHER_FRAMEWORKS
        return "a parameter of mpirun's launcher, which the agent sets" if of_launcher else ""
    if name in DENIED:
        return DENIED[name]
    for pattern, reason in DENIED.items():
        if pattern.endswith("*") and name.startswith(pattern[:-1]):
            return reason
    return ""


def refusal(name: str, value: str) -> str:
    """Why `-x` cannot carry this variable; empty when it can."""
    if not _NAME.fullmatch(name):
        return "mpirun's -x takes names of letters, digits and _ only"
    if "\0" in value:
        return "no process can have a value with a NUL in it"
    return ""

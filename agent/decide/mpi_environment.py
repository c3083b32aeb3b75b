"""Which variables of the launch environment MPI ranks get, and which they must not.

mpirun starts a rank of another pod from that pod's own SSH session, so every variable that a rank shall
have is forwarded by name (`-x NAME`). Values never stand on a command line.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.decide.environment import NAME, is_named

DENIED = (
    # Of the pod and the shell that mpirun runs in: ranks have no terminal, and mpirun sets their working directory.
    "HOSTNAME", "PWD", "OLDPWD", "SHLVL", "_", "TERM", "COLUMNS", "LINES", "SSH_*",
    # Kubernetes' own service addresses.
    "KUBERNETES_*",
    # Different from pod to pod: ranks would all see the coordinator's.
    "JOB_COMPLETION_INDEX", "POD_IP", "POD_NAME", "POD_UID", "NODE_NAME", "HOST_IP", "A4_LOCATION",
    # Torchrun's: MPI ranks have OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_LOCAL_RANK. A workload that wants RANK sets it
    # itself.
    "RANK", "LOCAL_RANK",
    # For the agent: the path of the job's secret, what it has already applied, and what it masks.
    "A4_SECRET_FILE", "A4_USER_ENV", "A4_SECRET_ENV",
    # Internal to one mpirun or to another launcher. PRRTE copies PRTE_MCA_* values to remote command lines. MPIEXEC_*
    # would change how mpirun runs, for example its time limit. OMPI_MCA_* for MPI itself is kept.
    "PMI_*", "PMIX_*", "ORTE_*", "PRTE_*", "OMPI_*", "MPIEXEC_*",
    # Shell functions are no variables. Each remote shell would run the file that the others name first.
    "BASH_FUNC_*", "BASH_ENV", "ENV",
    # One process's sockets, and one systemd unit's id.
    "LISTEN_*", "NOTIFY_SOCKET", "INVOCATION_ID",
)  # fmt: skip
"""What ranks do not get: names or, with a star at the end, beginnings of names."""

# Parameters of Open MPI's launcher (frameworks of ORTE and PRRTE): the agent sets these itself, and a stray
# one of the image would change hosts, mapping or the ssh command.
LAUNCHER_FRAMEWORKS = (
    "orte", "prte", "plm", "pls", "ess", "errmgr", "filem", "grpcomm", "iof", "odls", "oob", "ras", "regx",
    "rmaps", "rml", "routed", "rtc", "schizo", "sensor", "snapc", "sstore", "state", "dfs", "notifier",
)  # fmt: skip

KEPT_MCA = "OMPI_MCA_"
"""Open MPI forwards these by itself."""


def rank_environment(env: Mapping[str, str]) -> dict[str, str]:
    """What ranks get of the launch environment. mpirun's own is the same, so that local and remote ranks agree."""
    return {name: value for name, value in env.items() if NAME.fullmatch(name) and not is_denied(name)}


def is_denied(name: str) -> bool:
    """Whether ranks do not get this variable."""
    if name.startswith(KEPT_MCA):
        return name.removeprefix(KEPT_MCA).split("_")[0] in LAUNCHER_FRAMEWORKS
    return is_named(name, DENIED)

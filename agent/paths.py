"""Where files are. Every path has one owner here."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

HOSTFILE = "/etc/job-worker-services.txt"
HOSTFILE_ONE_PER_NODE = "/etc/job-worker-services-1pernode.txt"
RANK_ORDER = "/tmp/job-worker-rank-order.txt"
HOSTNAMES_ORDER = "/tmp/job-worker-hostnames-order.txt"
TERMINATION_LOG = "/dev/termination-log"
ROOT_SSH_CONFIG = "/root/.ssh/config"
BASHRC = "/etc/bash.bashrc"
PROFILE_SCRIPT = "/etc/profile.d/a4-agent.sh"
EXPORT_INIT_ENV = "/tmp/export_init_env.sh"
LIBRARY_PATHS = "/etc/ld.so.conf.d/a4-agent.conf"
DEFAULT_RUN_DIR = "/run/a4-agent"
RESULT = "result.json"
"""In a directory of results, and of a run on pod 0."""
POD_LOGS = "pod-logs"
"""Below a directory of results."""
POD_LOG = "pod.log"
"""What commands call the log of one pod, whatever its name is there."""
SECRET_FILE = "/etc/a4-agent/secret/job-secret"
"""Where the chart mounts the job's secret."""
SMI_DIRECTORY = "/usr/local/nvidia/bin"
"""Where GKE puts nvidia-smi: not every image has that on its PATH."""
DEEPEP_DIR = "/opt/deepep/DeepEP"
DOWNLOADERS_DIR = "/opt/a4-agent-downloaders"
"""Virtual environments of the programs that download models (A4_DOWNLOADERS_DIR)."""


class RunDir:
    """The private state of this pod; `path`: by default A4_RUN_DIR, as the environment of this process says."""

    def __init__(self, path: str = "") -> None:
        self.path = path = path or os.environ.get("A4_RUN_DIR") or DEFAULT_RUN_DIR
        self.lock = f"{path}/lock"
        self.facts = f"{path}/facts.json"
        self.plan = f"{path}/plan.json"
        self.state = f"{path}/state.json"
        self.events = f"{path}/events.jsonl"
        self.env_sh = f"{path}/env.sh"
        self.environment = f"{path}/environment.json"
        self.alive = f"{path}/alive"
        self.token = f"{path}/token"
        self.channels = f"{path}/channels"
        self.socket = f"{path}/agent.sock"
        self.rank_script = f"{path}/rank.sh"
        self.enter_script = f"{path}/enter-run.sh"
        self.runs = f"{path}/runs"
        self.ssh = f"{path}/ssh"
        self.ssh_config = f"{path}/ssh/ssh_config"
        self.sshd_config = f"{path}/ssh/sshd_config"

    def run(self, run_id: str) -> str:
        """Directory of one run: spool/, hostfile, ranks/, record.jsonl, end.json and what the run itself puts there."""
        return f"{self.runs}/{run_id}"

    def spool(self, run_id: str) -> str:
        """What this pod printed during a run."""
        return f"{self.run(run_id)}/spool"


def package_home() -> str:
    """The directory that the package lies in: `python -Es -m agent.NAME` there runs this very agent."""
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def shipped(kind: str, name: str) -> str:
    """Path of a file that comes with the agent, in `entrypoints` or `env`: checkout first, else installed.

    An installation has it below the prefix that the package is in, which is not sys.prefix for `pip install --user`,
    `--target`, or for Debian's Python and its /usr/local.
    """
    place = package_home()
    path = os.path.join(place, kind, name)
    while not os.path.exists(path) and place != "/":
        path = os.path.join(place, "share", "a4-agent", kind, name)
        place = os.path.dirname(place)
    return path


def agent_command(python: str, *words: str) -> list[str]:
    """The argv of this very agent under `python`, wherever the package lies; nothing comes from the environment."""
    return [python, "-I", os.path.join(package_home(), "agent", "__main__.py"), *words]


def own_program(name: str, *arguments: str) -> list[str]:
    """The argv of a program of entrypoints/ under the agent's own Python, which takes nothing from its environment."""
    return [sys.executable, "-I", "-S", shipped("entrypoints", name), *arguments]


def shipped_text(read: Callable[[str], str | None], kind: str, name: str) -> str:
    """The text of such a file. Raises RuntimeError where the installation is not whole: that is nobody's setting."""
    text = read(shipped(kind, name))
    if text is None:
        raise RuntimeError(f"the installation lacks {kind}/{name}")
    return text

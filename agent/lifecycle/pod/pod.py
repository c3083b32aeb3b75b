"""A pod, whatever its role: what it is, what it knows, and where it writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from agent import wire
from agent.decide.facts import Facts
from agent.decide.grace import divided
from agent.decide.os_refusals import refused
from agent.decide.plan import peer_name, pod_text
from agent.decide.pod_state import RunSummary
from agent.decide.runspec import RunSpec
from agent.decide.secret_variables import secret_values
from agent.lifecycle.keeping.run_logs import RunLogs
from agent.lifecycle.pod.fence import Fence
from agent.lifecycle.pod.known import LOOPBACK, Known
from agent.lifecycle.pod.state import State
from agent.log import Log
from agent.machine.api import Machine
from agent.paths import RunDir
from agent.settings import Settings


class Job(NamedTuple):
    """This pod's part of the job: a value, which `_replace` changes. It holds the job's secret."""

    settings: Settings
    """Those of this pod."""
    environ: Mapping[str, str]
    """The environment that programs of runs get."""
    secret: bytes
    """Empty for a job of one pod."""
    python: str
    """Absolute path of the agent's own Python."""
    spec: RunSpec
    """The first run."""
    topology: bool = True
    """Whether ranks follow the places of nodes; else the indices of pods."""
    started: float = 0.0
    """When the process started, on the machine's clock."""
    warnings: tuple[str, ...] = ()
    """About the settings; `serve` says them."""

    def __repr__(self) -> str:
        return wire.shown(self, "environ", "secret")


class Pod:
    """What every part of the lifecycle has of its pod. `finished` leaves the loop with the pod's exit code."""

    def __init__(self, machine: Machine, log: Log, job: Job, finished: Callable[[int], None]) -> None:
        self.machine = machine
        self.log = log
        self.job = job
        settings = self.settings = job.settings
        self.shares = divided(settings.grace, settings.warn_seconds if settings.warn_signal else 0.0)
        """What becomes of the grace time."""
        self.finished = finished
        self.dir = RunDir(job.settings.run_dir)
        self.nonce = machine.draw_nonce()
        self.known = Known(job.environ)
        self.heard: dict[int, Facts] = {}
        """On the coordinator: the facts of every pod that has told them, by index."""
        self.state = State(machine, log, job.settings)
        self.run_logs = RunLogs(machine, log, job.settings)
        self.fence = Fence(machine, settings)

    def learn(self, **fields: Any) -> None:
        """Set fields of what is known. What was handed out before stays as it was: a value never changes."""
        self.known = self.known._replace(**fields)

    def note_run(self, summary: RunSummary) -> None:
        """A run that has the cluster for itself has begun, again after a life was over, or, with `until`, ended: with a
        part of this pod or without.

        Every pod notes it, so that `a4-agent status` says the same everywhere, and so that what its agent says
        meanwhile is stored with that run.
        """
        # Another life of the same run, whose log goes on.
        if summary.until is None and self.state.goes_on(summary.id):
            self.state.update(run=summary, stuck=None, printed=None)
        elif summary.until is None:
            # Not over the log of the pod in whose place this one has come.
            log_name = f"{self.run_logs.log_name}-life-{summary.life}" if (summary.life or 0) > 1 else ""
            self.run_logs.begin(summary.id, top=summary.first and not summary.beside, log_name=log_name)
            self.log.labels["run"] = summary.id
            self.state.run_begun(summary)
        else:
            self.log.labels.pop("run", None)
            self.state.run_ended(summary)

    def sleep(self) -> None:
        """The first run is over and the cluster stays."""
        self.run_logs.end()
        self.state.sleep()

    def secrets(self, environ: Mapping[str, str]) -> set[str]:
        """What must not be shown of these variables."""
        return secret_values(environ, self.settings.secret_env.split())

    @property
    def alone(self) -> bool:
        """A job of one pod needs no secret, no sshd and no DNS."""
        return self.settings.nnodes == 1

    def where(self, index: int) -> str:
        """A pod in words."""
        plan, facts = self.known.plan, self.heard.get(index)
        if plan is not None:
            return plan.peers[plan.node_rank(index)].where
        name = peer_name(self.settings.hostname_prefix, index, self.settings.domain_name)
        own = index == self.settings.index
        pod_name, node = (self.settings.pod_name, self.settings.node_name) if own else ("", "")
        return pod_text(index, name, facts.pod_name if facts else pod_name, facts.node if facts else node)

    def ssh_addresses(self) -> list[str]:
        """Where sshd listens; on loopback for `kubectl port-forward`."""
        return [self.known.interface.address, LOOPBACK.address]

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """A file that the job needs. Raises SystemFault."""
        try:
            self.machine.write(path, text, mode)
        except OSError as error:
            raise refused(f"{path} cannot be written", error) from error

    def make_dir(self, path: str, mode: int) -> None:
        """A directory that the job needs. Raises SystemFault."""
        try:
            self.machine.make_dir(path, mode)
        except OSError as error:
            raise refused(f"{path} cannot be made", error) from error

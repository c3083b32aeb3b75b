"""What a pod's agent says of itself in state.json, for `a4-agent status` and the like."""

# Annotations are not postponed here: a NamedTuple compiles each that is a text, at every start.

from collections.abc import Mapping
from typing import Any, NamedTuple

from agent import wire
from agent.decide.diagnosis import Status
from agent.decide.ending import JobEnd, Origin

STATE_VERSION = 1
PHASES = ("preparing", "waiting", "forming", "formed", "running", "sleeping", "ended")
"""The phases of a pod. `waiting`: a worker, for its coordinator; `formed`: it has the plan."""


class RunSummary(NamedTuple):
    """A run that has, or had, the cluster for itself."""

    id: str
    workload: str = ""
    by: str = ""
    first: bool = False
    """It is the job's first run."""
    since: float = 0.0
    """Seconds since 1970, as is `until`."""
    pods: tuple[int, ...] = ()
    """Completion indices in rank order."""
    lead: int = 0
    results: str = ""
    """Directory on the coordinator."""
    until: float | None = None
    """Once it is over, as all that follows."""
    code: int | None = None
    what: str | None = None
    where: str | None = None
    origin: Origin | None = None
    beside: bool = False
    """It is the first, and results of an earlier start are where its own would be: they are below `runs`."""
    name: str = ""
    note: str = ""
    command: str = ""
    """Its workload and arguments in one line, cut where it is long."""
    life: int | None = None
    """Which of its lives, counted from 1; None: it has only one."""
    ended_by: str | None = None
    """Why the life before this one ended; None: this is the first."""
    awaits: tuple[int, ...] | None = None
    """Lost pods whose replacements it waits for; None: it waits for none."""

    def ended(self, until: float, end: JobEnd) -> "RunSummary":
        """The same once it is over. The reasons are not in it: every pod keeps 50 of these."""
        return self._replace(until=until, code=end.code, what=end.what, where=end.where, origin=end.origin)


class Loss(NamedTuple):
    """Why a pod is lost, and since when."""

    why: str
    since: float


class RecordedEnd(NamedTuple):
    """The job's end, and its first run."""

    code: int
    what: str
    where: str = ""
    why: str = ""
    origin: Origin = "agent"
    run: str = ""


class PodState(NamedTuple):
    """What the agent of a pod does."""

    phase: str = ""
    since: float = 0.0
    """When the phase began, in seconds since 1970, as are `formed` and `idle`."""
    epoch: str = ""
    index: int = 0  # type: ignore[assignment]  # nobody needs that of tuple
    pods: int = 1
    gpus: int = 0
    """GPUs of each pod."""
    agent: str = ""
    """Version of a4-agent."""
    version: int = STATE_VERSION
    run: RunSummary | None = None
    """The run that has the cluster for itself."""
    runs: tuple[RunSummary, ...] | None = None
    """Runs that are over, the newest last."""
    end: RecordedEnd | None = None
    lost: Mapping[int, Loss] | None = None
    missing: Mapping[int, str] | None = None
    """While the cluster forms: completion index → why that pod is not here."""
    formed: float | None = None
    idle: float | None = None
    """Since when nothing has the cluster for itself."""
    code: int | None = None
    """Exit code of a cluster that sleeps, or of a pod that has ended."""
    stuck: Status | None = None
    """On pod 0, what a look at a run in its silence has found, until it prints again."""
    # What follows is kept for metrics alone.
    printed: float | None = None
    """On pod 0, when a program of the run last printed."""
    findings: Mapping[str, int] | None = None
    """Severity → how many bad findings about this pod's devices its last part of a run gave."""

    @property
    def known_runs(self) -> tuple[RunSummary, ...]:
        """Those that are over and the one that goes on, the newest last."""
        return (*(self.runs or ()), *((self.run,) if self.run else ()))

    def run_id(self, called: str) -> str:
        """The id of the run of that name; what was given if no run has it."""
        return next((run.id for run in self.known_runs if run.name and run.name == called), called)

    def lost_why(self) -> dict[int, str]:
        """Completion index → why that pod is lost."""
        return {index: loss.why for index, loss in (self.lost or {}).items()}

    def to_json(self) -> dict[str, Any]:
        """The content of state.json, less what is not known."""
        return dict(wire.without_none(wire.to_json(self)))

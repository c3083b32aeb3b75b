"""What every workload says of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from agent.decide.ending import JobEnd
from agent.decide.mpirun import MpiVersion
from agent.decide.plan import Plan
from agent.launch import Launch

Kind = Literal["nothing", "everywhere", "mpi"]
"""Where it runs: nowhere; a process on every pod; mpirun on the coordinator, which reaches the others."""


@dataclass(frozen=True)
class Mpi:
    """The mpirun that would be used. `version` is that of Open MPI."""

    program: str
    version: MpiVersion


@dataclass(frozen=True)
class RunContext:
    """Everything that a launch may depend on, as it is on this pod."""

    run_id: str
    plan: Plan
    index: int
    """Completion index of this pod."""
    environ: Mapping[str, str]
    """The pod's environment."""
    master_port: int
    run_dir: str
    """Directory of this run, private to the pod."""
    token_file: str
    ssh_config: str
    interface: str
    python: str
    """The agent's own Python, which has mpi4py."""
    cores: int
    script: str = ""
    args: Sequence[str] = ()
    mpi: Mpi | None = None


@dataclass(frozen=True)
class Outcome:
    """What is known when a run's processes have ended."""

    status: int
    """Exit status of the coordinator's process, negative for a signal."""
    record: str = ""
    """What the rank programs wrote of themselves."""
    output: str = ""
    """The end of what the process wrote on stdout and stderr."""
    tokens: Sequence[str] = ()
    """Each pod's token in plan order."""
    lost: Mapping[int, str] = field(default_factory=dict)
    """Pods that the coordinator does not hear: completion index → why."""
    cause: JobEnd | None = None
    """Why the run was ended before its own end, if it was."""
    stuck: bool = False
    """The process had reported its end and did not come to it: `status` is from our ending it."""


@dataclass(frozen=True)
class Judgement:
    """How a run ended, the text for people and the data for result.json."""

    end: JobEnd
    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    log_name: str = ""
    """File in the results directory that gets `text` and the output; empty: none."""


class Workload(Protocol):
    """Decides only: what to launch, and what its end means."""

    name: str
    kind: Kind

    def launch(self, context: RunContext) -> Launch | None:
        """This pod's process; None when it has none."""

    def is_ending(self, output: str, record: str) -> bool:
        """Does what the process printed, or the ranks' record, say that it is about to end?

        Open MPI 5.0.11 on a busy machine sometimes does not: what says so and stays is ended.
        """

    def judge(self, context: RunContext, outcome: Outcome) -> Judgement:
        """The verdict over the coordinator's own part."""

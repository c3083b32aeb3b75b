"""What every workload says of itself."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from agent.decide.ending import JobEnd
from agent.decide.facts import Finding
from agent.decide.mpirun import Mpi as Mpi
from agent.decide.plan import Plan
from agent.decide.ranks import RankEnd
from agent.decide.run_names import life_parts
from agent.decide.runspec import RunSpec
from agent.errors import UsageError
from agent.launch import Launch
from agent.workloads.nccl_logs import read_logs
from agent.workloads.option import Option, OptionParser
from agent.workloads.showing import Showing
from agent.workloads.step_record import open_step

if TYPE_CHECKING:
    from agent.decide.result import Result, Sweep, Table, Training

Kind = Literal["nothing", "everywhere", "mpi"]
"""Where it runs: nowhere; a process on every pod; mpirun on the lead, which reaches the others."""


class Measurements(NamedTuple):
    """What a workload measured and found, for result.json."""

    reasons: Sequence[str] = ()
    """Every finding that counts against the run, one sentence each."""
    warnings: Sequence[str] = ()
    """What is not as it should be and does not count against it, likewise."""
    tables: Sequence[Table] = ()
    sweeps: Sequence[Sweep] = ()
    trainings: Sequence[Training] = ()
    versions: Mapping[str, str] = {}
    """Name → version, of what was really used."""
    phases: Mapping[str, float] = {}
    """Moments of the whole run: `ranks-ready`, `first-collective`, in seconds since 1970."""
    record: Mapping[str, Any] = {}
    """What the workload's programs said of themselves."""
    found: Sequence[Finding] = ()
    """What it found out about the health of pods."""
    gate: Mapping[str, Any] | None = None
    """How the speed was judged: `status`, `reason` and what was compared; None: it was not."""


class RunFile:
    """A path in the directory of a run, the same on all its pods."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, context: RunContext, kind: object) -> str:
        return f"{context.run_dir}/{self._name}"


NO_BASELINES = '{"version": 1, "baselines": []}'
"""The text of a file of baselines that is not there yet."""


@dataclass(frozen=True)
class RunContext:
    """Everything on which a launch may depend, as it is on this pod."""

    run_id: str
    """Where the run may start again, the id of this life, RUN.2."""
    spec: RunSpec
    plan: Plan
    """The plan of the pods that take part, in rank order; `plan.peers[0]` is the lead."""
    index: int
    """Completion index of this pod."""
    environ: Mapping[str, str]
    """The pod's environment, with the variables of `spec` on top."""
    master_port: int
    run_dir: str
    """Directory of this run, private to the pod and the same path on all; hostfiles of the run are in it."""
    token_file: str
    ssh_config: str
    interface: str
    python: str
    """The agent's own Python, which has mpi4py."""
    workload_python: str
    """The workload's Python, which has torch (A4_PYTHON)."""
    cores: int
    rank_script: str = ""
    """The copy of entrypoints/rank.sh on every pod."""
    enter_script: str = ""
    """That of entrypoints/enter-run.sh."""
    script: str = ""
    bucket: bool = False
    """A bucket is mounted (agent.settings.BUCKET)."""
    mpi: Mpi | None = None
    """The lead's Open MPI; known on the lead and on the coordinator."""
    keep_ranks: bool = False
    """Keep each rank's output in files of its own: a time limit is set, and its last words will be wanted."""
    profile: str = ""
    """Name of the fabric profile; empty: none."""
    baselines: Mapping[str, str] = field(default_factory=dict)
    """Files of baselines, path → text, empty where it could not be read, NO_BASELINES where there is none; the user's
    (A4_BASELINES) comes last."""
    job_pods: int = 0
    """How many the job has, whoever takes part; 0: those of the plan."""
    why: bool = False
    """Ranks are prepared to say why a run hangs (A4_WHY)."""
    why_timing: bool = False
    """Torch times every operation (A4_WHY_TIMING)."""
    ras_port: int = 0
    """Where NCCL's RAS of this run listens on this pod; 0: it is not told."""

    record = RunFile("record.jsonl")
    """File of the rank programs' record, on the lead."""
    notes_dir = RunFile("notes")
    """Directory on each pod for files of the run that `inspect` reads when the part is over."""
    series_file = RunFile("series.jsonl")
    """What the user's program writes of itself, on each pod (A4_SERIES_FILE)."""
    torch_error = RunFile("torch-error.json")
    """File to which torchrun copies the error file of the rank that failed first, on each pod."""
    torch_logs = RunFile("torch-logs")
    """Directory for what torchrun keeps of its processes."""
    ranks_dir = RunFile("ranks")
    """Directory of what entrypoints/rank.sh records of the ranks on each pod."""
    marks_file = RunFile("marks")
    """What entrypoints/enter-run.sh reads on each pod: "GROUP CGROUP"."""
    told_file = RunFile("ranks/told")
    """With this file on a pod, its ranks stay until mpirun ends (entrypoints/rank.sh)."""
    ranks_output = RunFile("ranks-output")
    """Directory of the last output of the ranks on each pod, with `keep_ranks`."""
    why_dir = RunFile("why")
    """Directory on each pod for the sockets of its ranks, and what was learned of them while the run hung."""
    hostfile = RunFile("hostfile")
    hostfile_one_per_node = RunFile("hostfile-1pernode")

    @property
    def lead(self) -> int:
        """Completion index of the pod with rank 0, on which mpirun is started."""
        return self.plan.peers[0].index

    @property
    def lives_left(self) -> int:
        """How often it may start again."""
        return max(0, (self.spec.lives or 0) - self.life + 1)

    @property
    def life(self) -> int:
        """Which life of the run this is, counted from 1."""
        return life_parts(self.run_id)[1]

    @property
    def master(self) -> str:
        """Where the pod with rank 0 is found (MASTER_ADDR). Of a run that may start again its address: DNS may still
        name that of a pod that was replaced."""
        lead = self.plan.peers[0]
        return lead.address if self.spec.lives else lead.name

    @property
    def args(self) -> Sequence[str]:
        return self.spec.args

    @property
    def indices(self) -> list[int]:
        """Completion indices of the pods, in rank order."""
        return [peer.index for peer in self.plan.peers]

    @property
    def names(self) -> list[str]:
        """Names of the pods, in rank order."""
        return [peer.name for peer in self.plan.peers]

    @property
    def per_pod(self) -> int:
        """Ranks on each pod."""
        return self.spec.per_node or self.plan.slots

    @property
    def holder(self) -> int | None:
        """Completion index of the pod with the rank that somebody starts in a terminal; None: all are started."""
        if self.spec.without is None:
            return None
        at = self.spec.without // self.per_pod
        return self.indices[at] if at < len(self.indices) else None  # else a coordinator of another release asks it

    @property
    def start_rank(self) -> str:
        """The file that starts that rank, on its pod."""
        return f"{self.run_dir}/start-rank-{self.spec.without}"

    def where(self, index: int) -> str:
        """The pod with this completion index, in words."""
        return self.plan.peers[self.plan.node_rank(index)].where

    def losses(self, lost: Mapping[int, str]) -> str:
        """The pods that were lost and why, in words."""
        return "\n".join(f"{self.where(index)}: {why}" for index, why in sorted(lost.items()))


class FailedPart(NamedTuple):
    """What a process that failed left behind."""

    output: str = ""
    """The end of what it wrote on stdout and stderr."""
    error: str = ""
    """Torch's error file of the rank that failed first on that pod; empty when there is none."""


@dataclass(frozen=True)
class Outcome:
    """What is known when all parts of a run are over."""

    status: int
    """Exit status of the lead's process, negative for a signal."""
    record: str = ""
    """What the rank programs wrote of themselves (record.jsonl on the lead)."""
    output: str = ""
    """The end of what the lead's process wrote on stdout and stderr."""
    tokens: Sequence[str] = ()
    """Each pod's token in plan order."""
    statuses: Mapping[int, int] = field(default_factory=dict)
    """Exit status of every pod's process: completion index → status. Pods without an answer are missing."""
    ranks: Mapping[int, RankEnd] = field(default_factory=dict)
    """What entrypoints/rank.sh recorded on all pods: rank → how it ended."""
    lost: Mapping[int, str] = field(default_factory=dict)
    """Pods that the coordinator does not hear: completion index → why."""
    first: int | None = None
    """Completion index of the pod whose process was heard to fail first; None where another cause came before."""
    failures: Mapping[int, FailedPart] = field(default_factory=dict)
    """What is known of the processes that failed: completion index → their last words."""
    notes: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """What `Workload.inspect` made of each pod's files: completion index → that."""
    cause: JobEnd | None = None
    """Why the run was ended before its own end, if it was."""
    told: bool = False
    """It was told to end from outside: that its ranks then end well is no success."""
    stuck: bool = False
    """The process had reported its end and did not come to it: `status` is from our ending it."""


class Judgement(NamedTuple):
    """How a run ended, the text for people and what result.json gets."""

    end: JobEnd
    text: str = ""
    measurements: Measurements = Measurements()
    log_name: str = ""
    """File in the results directory that gets `text` and the output; empty: none."""
    files: Mapping[str, str] = {}
    """More files: name → text, in the results directory; an absolute path is one on the coordinator's pod."""


class Workload(ABC):
    """Decides only: what to launch, and what its end means. What is said here holds for most workloads."""

    name: str
    kind: Kind = "everywhere"
    exclusive = True
    """Has the cluster for itself. What has not (`exec`) runs beside, unrecorded and out of the pods' logs."""
    fail_fast = True
    """The first part that fails ends the others."""
    saves = True
    """Its processes may have a state to save, and have time for it also where the agent ends them."""
    starts_ranks = False
    """The process of each pod starts that pod's ranks."""
    takes_without = False
    """Somebody may start one of its ranks in a terminal (`RunSpec.without`)."""
    has_lives = True
    """It may start again after a pod or rank is lost (`RunSpec.lives`)."""
    uses_fabric = False
    """Refused where the fabric that its pods' profile promises cannot be used."""
    imports_torch = False
    """Refused where the workload's torch cannot be imported with the NCCL that is loaded."""
    uses_baselines = False
    """Needs `RunContext.baselines`."""
    shows_collective: re.Pattern[bytes] | None = None
    """What its output has as soon as a collective is complete; None: nothing says so."""
    output_bytes = 64 << 10
    """The end of the output that is kept for `judge`."""
    options: Sequence[Option] = ()
    """Its own options, for help, completion and its parser."""
    passes_on = ""
    """Who gets all other arguments; empty: there can be none."""

    @property
    def starts_nothing(self) -> bool:
        """No pod has a process."""
        return self.kind == "nothing"

    @property
    def led(self) -> bool:
        """Only the lead has a process, which reaches the other pods itself."""
        return self.kind == "mpi"

    def printing(self, indices: Sequence[int]) -> Sequence[int]:
        """Those of the pods that take part (in rank order) whose process prints."""
        if self.starts_nothing:
            return []
        return indices[:1] if self.led else indices

    def check(self, context: RunContext) -> None:
        """Raises UsageError for arguments that this workload does not take on these pods: before any pod is told of the
        run, and whichever pod `context` is of."""
        parser = OptionParser(self.name, self.options)
        if self.passes_on:
            parser.parse_known_args(context.args)
        elif context.args and not self.options:
            raise UsageError(f"{self.name} takes no arguments: {' '.join(context.args)}")
        else:
            parser.parse_args(context.args)

    @abstractmethod
    def launch(self, context: RunContext) -> Launch | None:
        """This pod's process; None when it has none. `check` has passed. Raises AgentError."""

    def programs(self, context: RunContext) -> Sequence[str]:
        """Programs that this pod must be able to start in the run's working directory before any pod begins."""
        return ()

    def files(self, context: RunContext) -> Sequence[str]:
        """Files that this pod must have, likewise."""
        return ()

    def is_ending(self, output: str, record: str, ranks: Mapping[int, RankEnd]) -> bool:
        """Does what the process printed, or the ranks' record, say that it is about to end? `ranks`: those of this pod.

        Open MPI 5.0.11 on a busy machine sometimes does not: what says so and stays is ended.
        """
        return False

    def ranks_over(self, context: RunContext, ranks: Mapping[int, RankEnd]) -> bool:
        """Have all ranks that are planned on this pod ended, by their records? Never for a run of several steps."""
        return False

    def progress(self, record: str) -> str:
        """What is being done now, by the ranks' record; empty when nobody knows. Of a run of several steps, which."""
        return open_step(record)

    def is_victim(self, status: int, left: FailedPart) -> bool:
        """Did this pod's process, which ended with `status`, fail only because another had, by what it left?"""
        return False

    def rank_code(self, context: RunContext, outcome: Outcome) -> int | None:
        """With what the rank ended that ended the run; None: with the run's own code, or nobody knows."""
        return None

    def inspect(self, context: RunContext, files: Mapping[str, str]) -> object:
        """What this pod's files in `context.notes_dir` (name → text) say, as a small record of agent.wire, whose JSON
        the coordinator gets; None: nothing. Most have no other files there than logs of NCCL."""
        return read_logs(files)

    @abstractmethod
    def judge(self, context: RunContext, outcome: Outcome) -> Judgement:
        """The verdict over the whole run, as seen by the coordinator."""

    def shown(self, result: Result) -> Showing:
        """What pages show of a result besides what every one has; it may be of an earlier version."""
        return Showing()


def run_variables(context: RunContext) -> dict[str, str]:
    """The run's id, its pods in rank order, and its sizes in place of the job's that the pod has.

    What the user has set in the shell stays.
    """
    pods = len(context.plan.peers)
    sizes = {"NNODES": pods, "WORLD_SIZE": context.spec.ranks or context.per_pod * pods}
    return {
        "A4_RUN": context.run_id,
        **({"A4_LIFE": str(context.life), "A4_LIVES_LEFT": str(context.lives_left)} if context.spec.lives else {}),
        "A4_RUN_PODS": ",".join(map(str, context.indices)),
        "A4_JOB_NNODES": str(context.job_pods or pods),
        **{name: str(size) for name, size in sizes.items() if name in context.environ and name not in context.spec.env},
    }

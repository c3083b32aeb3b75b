"""What the pods of a run saw when it stood still, as it travels between them and as it is decided on.

A pod's records have at most `MOST_BYTES` bytes as JSON (agent.clinic.why.fitting cuts them); the raw answers stay in
the run's directory on that pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from agent.clinic.why.pace import Pace
from agent.decide.diagnosis import SourceState

MOST_BYTES = 32 * 1024
DEFAULT_GROUP = "0"
"""Name of the group of all ranks."""
NO_ENTRIES = "the recorder is empty: torch records gloo's operations only with TORCH_FR_BUFFER_SIZE > 0"
"""Said by a recorder that answered: its process has entered nothing that is recorded."""
Role = Literal["rank", "launcher", "child", "other"]
"""child: started by a rank, such as a worker of a data loader; launcher: mpirun, orted, prted, torchrun's agent"""
ProcessState = Literal["R", "S", "D", "T", "t", "Z", "X", "I", "gone", "?"]
"""As in /proc, read before any debugger looked; gone: it was the run's, and is not there any more."""


class Frame(NamedTuple):
    """One frame of a stack."""

    function: str
    file: str = ""
    """Path of the Python file, or library of a native frame; empty: unknown."""
    line: int | None = None
    """None: a native frame."""
    arguments: Mapping[str, str] = {}
    """Those that say whom it waits for, as py-spy prints them: {"src": "1"}."""

    @property
    def is_native(self) -> bool:
        return self.line is None


class Thread(NamedTuple):
    """One thread of a Python process."""

    name: str
    frames: tuple[Frame, ...] = ()
    """The innermost first."""
    holds_gil: bool = False
    tid: int | None = None


class Waiting(NamedTuple):
    """Where the kernel has a thread, by /proc/PID/task/TID."""

    state: ProcessState
    wchan: str = ""
    syscall: str = ""
    """Its name; empty: it runs, or it may not be read."""
    file: str = ""
    """What the file descriptor of that call leads to: a path, socket:[…], pipe:[…]; empty: none or unknown."""


class Operation(NamedTuple):
    """One collective operation, or one send or receive, that a rank entered."""

    number: int
    """Its number among those of its group, from 1."""
    name: str
    """all_reduce, broadcast, …, without the backend."""
    size: str = ""
    """What goes in, as shape and type: "[1024, 2] float32"; several tensors with a comma between them."""


class GroupProgress(NamedTuple):
    """How far one process came in one group of ranks, by torch's recorder."""

    group: str
    """Name of the process group, the same on all of its ranks."""
    backend: Literal["nccl", "gloo", "other"]
    entered: int
    """Number of the last operation that it entered; 0: none."""
    completed: int | None = None
    """Number of the last that is known to be over, 0: none; None: the recorder does not say."""
    started: int | None = None
    """Number of the last that the device began; None: torch's timing is off."""
    recent: tuple[Operation, ...] = ()
    """The last that it entered, the newest last. They begin with the first that is not over, where that is known."""
    sends: tuple[Operation, ...] = ()
    """Sends and receives that are not over, of NCCL, with numbers of their own."""
    ranks: tuple[int, ...] = ()
    """Global ranks of the group; empty: not known."""
    description: str = ""
    """What the program calls it: "tensor parallel"; empty: nothing."""
    entered_before: int | None = None
    """`entered` at a first look, `Collected.apart` seconds earlier; None: there was none."""
    completed_before: int | None = None


class Process(NamedTuple):
    """One process of the run."""

    pid: int
    """In its pod."""
    parent: int
    state: ProcessState
    role: Role
    rank: int | None = None
    """Global; that of the rank that started it, for a child. None: unknown."""
    waiting: tuple[Waiting, ...] = ()
    """The main thread first."""
    threads: tuple[Thread, ...] = ()
    """Python stacks, the main thread first; empty: none could be taken (`PodRecords.sources` says why)."""
    holds_gil: bool | None = None
    """A thread holds the GIL and none lets it go: its Python code does not answer. None: not known."""
    groups: tuple[GroupProgress, ...] = ()
    stays: bool | None = None
    """At two looks its stack was in the same operation at the same place of the program, or in none. None: it
    was not looked at twice."""
    pace: Pace | None = None
    """How often it enters operations, by looks every 10 s at its recorder; None: it has none."""


class Source(NamedTuple):
    """Why one way to look at a pod gave nothing; or that groups are from a dump, which those do not say."""

    name: str
    state: SourceState
    why: str = ""
    """Why it is unavailable, what to set to have it; a sentence without a full stop."""
    pids: tuple[int, ...] = ()
    """The processes that it is about; empty: the pod."""


RasStatus = Literal["running", "init", "finalize", "abort", "unresponsive", "dead", "no_comm", "unknown"]


class RasRank(NamedTuple):
    """A rank of a communicator, as NCCL's RAS knows it."""

    rank: int
    """In the communicator."""
    pid: int
    host: str
    """An address."""
    status: RasStatus = "running"


class RasCount(NamedTuple):
    """The ranks of a communicator that launched that many of an operation."""

    operation: str
    """all_reduce, …; "": of all operations together, where NCCL does not count each."""
    count: int  # type: ignore[assignment]  # nobody needs that of tuple
    ranks: str
    """As numbers and ranges: "0-6,8"."""


class RasCommunicator(NamedTuple):
    """One of NCCL's communicators."""

    name: str
    """Its hash."""
    size: int
    counts: tuple[RasCount, ...] = ()
    odd: tuple[RasRank, ...] = ()
    """Ranks that are in a minority or not running, with their processes; the others are not listed."""
    missing: tuple[RasRank, ...] = ()
    """Ranks that did not answer, or that RAS gave up; where it tells of processes alone, rank is -1."""
    status: str = ""
    """RAS's own word: OK, MISMATCH, INCOMPLETE, …"""


class Ras(NamedTuple):
    """What NCCL's RAS answered: one query on one pod is about all processes of the job."""

    status: str
    """The worst of the communicators' words; OK says only that the counts are equal."""
    communicators: tuple[RasCommunicator, ...] = ()
    moves: bool = False
    """A count was lower at the query before."""
    here: tuple[RasRank, ...] = ()
    """Ranks with an address of the pod that asked, some of them; only the JSON names ranks that are like the others."""
    is_of_run: bool = False
    """It came from the address that the agent has given to this run alone."""


class PodRecords(NamedTuple):
    """All that one pod saw."""

    pod: int
    """Completion index."""
    name: str
    node: str
    """Empty: not known."""
    hosts: tuple[str, ...] = ()
    """Addresses of the pod, and its host name as its processes see it: RAS names a process by pid and address."""
    processes: tuple[Process, ...] = ()
    ras: Ras | None = None
    sources: tuple[Source, ...] = ()
    printed: Pace | None = None
    """How often the run prints here; None: it has no process here that prints."""
    left_out: str = ""
    """What did not fit into MOST_BYTES, in words; empty: nothing."""

    @property
    def groups(self) -> list[GroupProgress]:
        return [group for process in self.processes for group in process.groups]

    @property
    def looked_twice(self) -> bool:
        """Does it say by how much a rank's numbers grew between two looks?"""
        return any(group.entered_before is not None for group in self.groups)


class Collected(NamedTuple):
    """What was collected of a run."""

    run: str
    pods: tuple[PodRecords, ...] = ()
    silent: Mapping[int, str] = {}
    """Pods that gave no records, by completion index, and why: lost, or no answer within the time."""
    ranks: int | None = None
    """How many ranks the launcher was told to start; None: unknown, as a script starts them."""
    quiet: float | None = None
    """Seconds since the run last printed something."""
    apart: float | None = None
    """Seconds between the two looks; None: there was one."""
    trigger: Literal["asked", "stall", "timeout", "silence", "watchdog", "cancel"] = "asked"
    hang_seconds: float = 0.0
    """A4_HANG_SECONDS: a rank that has only not entered an operation hangs after so long, at the earliest."""

    @property
    def groups(self) -> list[GroupProgress]:
        return [group for pod in self.pods for group in pod.groups]

    @property
    def moves(self) -> bool:
        """Has any rank entered another operation since the first look?"""
        return any(group.entered_before not in (None, group.entered) for group in self.groups)

    def after(self, first: Collected, apart: float) -> Collected:
        """This second look with how far ranks were at the first, `apart` seconds before."""
        before = {(pod.pod, one.pid): one.groups for pod in first.pods for one in pod.processes}

        def with_first(pod: PodRecords) -> PodRecords:
            seen = [(one, before.get((pod.pod, one.pid), ())) for one in pod.processes]
            return pod._replace(processes=tuple(one._replace(groups=with_before(one.groups, old)) for one, old in seen))

        return self._replace(pods=tuple(map(with_first, self.pods)), apart=apart)


def with_before(groups: Iterable[GroupProgress], before: Iterable[GroupProgress]) -> tuple[GroupProgress, ...]:
    """The groups with the numbers that they had at a first look, if it had them."""
    numbers = {(one.group, one.backend): (one.entered, one.completed) for one in before}
    known = [(one, numbers.get((one.group, one.backend))) for one in groups]
    return tuple(one._replace(entered_before=old[0], completed_before=old[1]) if old else one for one, old in known)

"""The seam between the life of a pod and the machine: everything the lifecycle may ask for.

`agent.machine.host` is the real one. Tests put a fake in its place, on which no time passes.
Callbacks come one at a time, never from inside the call that asked for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from agent import wire
from agent.launch import Launch

SERVER_SECONDS = 10.0
"""How long a file server that has been in use may take to answer: it or its mount may just have begun."""

ProblemKind = Literal[
    "name",  # DNS has no answer
    "unreachable",  # no route
    "timeout",  # no answer in time
    "refused",  # nobody listens
    "host-key",  # somebody else answers
    "key-refused",  # it does not take our key
    "ssh",  # SSH broke otherwise
    "agent",  # logged in, but no agent answers there
]
IDENTITY_PROBLEMS = ("host-key", "key-refused")


class Problem(NamedTuple):
    """Why a peer could not be reached; `text` reads after a pod's name."""

    kind: ProblemKind
    text: str


class Target(NamedTuple):
    """The worker to which a control channel is opened. Keys are in OpenSSH's text forms."""

    index: int  # type: ignore[assignment]  # nobody needs that of tuple
    name: str
    address: str
    port: int
    host_key: str
    client_key: str
    command: str

    def __repr__(self) -> str:
        return wire.shown(self, "client_key")


class Interface(NamedTuple):
    """A network interface that is up, with its first IPv4 address."""

    name: str
    address: str


class Whereabouts(NamedTuple):
    """What the metadata server said: source → text; `warning` says why there is none."""

    answers: Mapping[str, str]
    warning: str = ""


class RunMarks(NamedTuple):
    """What tells the processes of a run on this pod from all others. All that they start inherits it."""

    run: str
    """The run's id, in the variable A4_RUN. Programs that overwrite or clear their environment lose it."""
    group: int = 0
    """A supplementary group of theirs alone; 0: none."""
    cgroup: str = ""
    """Directory of a cgroup of cgroup v2 that is theirs alone; empty: none."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Child(Protocol):
    """A process started by the agent, leader of a session of its own."""

    pid: int
    is_paused: bool
    """What it prints stays in its pipes, because too much of what it printed before is unread."""

    def signal(self, number: int) -> None:
        """Send a signal to every process of its group; one that is gone is ignored."""

    def await_group(self) -> None:
        """From now on it has not ended before every process of its group has."""


class Channel(Protocol):
    """One open connection to a peer, whatever carries it."""

    def send(self, line: bytes) -> None:
        """Queue one encoded message. Never blocks, never raises: a broken channel reports its end."""

    def close(self) -> None:
        """Drop the connection; no further callback comes from it."""

    def receive(self, line: Callable[[bytes], None], ended: Callable[[str], None]) -> None:
        """Name who gets each line and who is told, with the reason, that the connection is gone."""


T = TypeVar("T")

AGENT = 3
"""Stream of the agent's own lines in a spool, beside 1 and 2 for stdout and stderr."""


class Piece(NamedTuple):
    """A stretch of a spool, whole frames only."""

    frames: tuple[tuple[int, bytes], ...]
    """(stream, bytes): 1 stdout, 2 stderr, 3 the agent's own log."""
    next: int
    """Offset to read on from."""
    skipped: int = 0
    """Bytes between the wanted offset and the first frame that are no longer kept."""


class Search(NamedTuple):
    """Where an inventory looks, and for what."""

    path: str
    """Search path for programs."""
    environ: Mapping[str, str] = {}
    """The workload's environment: libraries are looked for as it says."""
    python: str = "python3"
    """The workload's."""
    fabric: bool = False
    """Libraries matter even where there are no GPUs."""
    libraries: Sequence[str] = ()
    files: Sequence[str] = ()
    socket_dir: str = ""
    """Directory in which a socket is waited for; empty: none is."""

    def __repr__(self) -> str:
        return wire.shown(self, "environ")


class Spool(Protocol):
    """What one pod printed during one run, on this pod's disk; the oldest goes when all spools take too much.

    Offsets count from 0 over all that was ever appended, frame headers included.
    """

    end: int
    """Offset after the last frame."""
    lost: int
    """Bytes that could not be written (a full disk)."""

    def append(self, stream: int, data: bytes) -> None:
        """Never raises: what cannot be written is counted in `lost`."""

    def close(self) -> None: ...


class KeeperProcess(Protocol):
    """A process that stores files in one directory, as entrypoints/keep-results.py says."""

    def send(self, *words: str) -> None:
        """Queue a command. Never blocks, never raises: a process that is gone reports its end."""

    def close(self, *, kill: bool) -> None:
        """Nothing more is sent or heard but its end. Without `kill` it first does what it was told."""


GuardSaid = Literal[
    "ready",  # it guards, from now on
    "passed",  # it kills what it guards, from now on
    "gone",  # it has ended: nobody guards
]


class GuardProcess(Protocol):
    """A process that kills the processes of a run when a moment has come, or when its agent is gone."""

    def until(self, deadline: float) -> None:
        """That moment is a later one, on the clock of `Machine.now`. Never blocks, never raises."""

    def close(self) -> None:
        """Nothing of the run is left. No further callback comes from it."""


class Clock(Protocol):
    """Time, and what comes back later in the agent's one loop."""

    def now(self) -> float:
        """Seconds on a clock that never jumps."""

    def wall(self) -> float:
        """Seconds since 1970; for people only, nothing is decided by it."""

    def later(self, seconds: float, action: Callable[[], None]) -> Timer: ...

    def aside(self, work: Callable[[], T], done: Callable[[T], None], refused: Callable[[OSError], None]) -> None:
        """Do what takes long, or may hang, in a thread of its own; `done` gets in the loop what came of it. Where no
        more threads can be had, `refused` gets why."""


class Network(Protocol):
    """Other pods, this pod's own commands, and where this pod is."""

    def resolve(self, names: Sequence[str], done: Callable[[str, str | Problem], None]) -> None:
        """Look up the IPv4 address of each name in parallel; `done(name, answer)` once per name."""

    def connect(self, target: Target, done: Callable[[Channel | Problem], None]) -> None:
        """Open a control channel through SSH."""

    def accept(self, directory: str, opened: Callable[[Channel], None]) -> None:
        """Take control channels that arrive at this pod, through FIFOs in `directory`."""

    def listen(self, path: str, opened: Callable[[Channel], None], full: bytes) -> None:
        """Take connections of this pod's own commands on a Unix socket. When the descriptors that are left are needed
        for other work, one gets the line `full` and is closed. Raises OSError."""

    def locate(self, host: str, done: Callable[[Whereabouts], None]) -> None:
        """Ask the metadata server for this node's place."""

    def interfaces(self) -> list[Interface]: ...

    def hostname(self) -> str: ...

    def port_holder(self, address: str, port: int) -> str:
        """The program that listens there, in words; empty when none does."""


class Processes(Protocol):
    """Programs that this pod starts, asks and ends."""

    def find_program(self, name: str, path: str) -> str | None:
        """Absolute path of a program on the search path `path`."""

    def why_unstartable(
        self, programs: Sequence[str], path: str, cwd: str, files: Sequence[str] = ()
    ) -> OSError | None:
        """Why starting one of these programs in `cwd` would fail, or which of the `files` is missing there; None when
        nothing speaks against it.

        It may hang with the server that has them: for `aside`.
        """

    def start(
        self,
        launch: Launch,
        ended: Callable[[int], None],
        output: Callable[[int, bytes], None],
        *,
        emitted: bool = False,
        marks: RunMarks | None = None,
    ) -> Child:
        """Start a process, of a run if it has `marks`; `ended(status)` gets its exit status, negative for a signal.

        What it writes goes to `output` as (1 or 2, bytes). One whose output is `emitted` has to wait with writing
        while `emit` is far behind. Raises OSError or ValueError when it cannot be started.
        """

    def start_keeper(
        self,
        directory: str,
        number: int,
        heard: Callable[[Sequence[str]], None],
        ended: Callable[[KeeperProcess, int], None],
        base: str = "",
    ) -> KeeperProcess:
        """Start the process with this number that stores in `directory`, which need not exist yet. Raises OSError.

        `heard` gets what it says, `ended` its exit status. `base`: the beginning of the directory that somebody named,
        behind which no symbolic link is followed; by default all of it.
        """

    def start_guard(self, marks: RunMarks, deadline: float, said: Callable[[GuardSaid], None]) -> GuardProcess:
        """Start a guard of the processes of a run, for this moment on the clock of `now`. Raises OSError."""

    def gather_inventory(
        self, search: Search, say: Callable[[str], None], done: Callable[[Mapping[str, Any]], None]
    ) -> None:
        """Gather what the plan does not need; `say` is told what takes long. Never raises; calls `done` within 70 s."""

    def ask_process(self, argv: Sequence[str], cwd: str, seconds: float, done: Callable[[str], None]) -> None:
        """Run a program of the agent's own in an environment without variables; `done` gets the line that it prints
        within that time, or an empty text. One that hangs in the kernel is left behind."""

    def make_cgroup(self, path: str) -> bool:
        """Make a cgroup for a run; False where that is not possible."""

    def tell(self, marks: RunMarks, number: int, variable: str, seconds: float, over: Callable[[], None]) -> None:
        """Send a signal once to the processes of a run: to its ranks, which have this variable; empty: to all.

        `over` is called when none of them is left, or after `seconds`. Any other signal than SIGTERM goes only to
        processes that handle it.
        """

    def sweep(
        self, marks: RunMarks, seconds: float, done: Callable[[int, Sequence[int]], None], *, at_once: bool = False
    ) -> None:
        """End all processes of a run and remove its cgroup; `at_once`: by SIGKILL, with no time after SIGTERM.

        `done(count, left)` follows `seconds` after SIGKILL at most.
        """

    def memory_kills(self) -> int:
        """How many processes of this pod the kernel has killed because memory had run out."""


class Output(Protocol):
    """What goes to stdout and stderr, and the spools that keep it."""

    def emit(self, stream: int, data: bytes) -> None:
        """Write to the agent's own stdout (1) or stderr (2), in order; never blocks, never raises."""

    def spool(self, directory: str, limit: int) -> Spool:
        """Begin a spool, anew if there was one; all spools together have at most `limit` bytes. Raises OSError."""

    def read_spool(self, directory: str, offset: int, most: int, since: float = 0.0) -> Piece | None:
        """Frames from `offset` on, about `most` bytes, none written before `since` (seconds since 1970).

        None when there is no such spool.
        """


class Files(Protocol):
    """Small files of this pod. What may lie on a server that hangs is for `Clock.aside`, or for a keeper."""

    def exists(self, path: str) -> bool:
        """Is a file or directory there?"""

    def read(self, path: str) -> str | None:
        """Text of a small file; None when it is not there."""

    def read_part(self, path: str, offset: int, most: int) -> bytes:
        """At most so many bytes of a file from `offset` on; none where it ends, or cannot be read."""

    def read_tails(self, path: str, most: int) -> dict[str, str]:
        """Relative name → the last `most` bytes, as text, of every file below a directory."""

    def read_ends(self, path: str, most: int) -> dict[str, str]:
        """Name → text of the files in a directory, of long ones the first and the last `most` bytes; empty when it is
        not there."""

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory, the oldest first; empty when it is not there."""

    def dir_size(self, path: str) -> int:
        """Bytes of the files below a directory; 0 when it is not there."""

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Replace a file as a whole. Raises OSError."""

    def check_writable(self, path: str) -> None:
        """See whether `write` could replace that file, which stays as it is. Raises OSError."""

    def append(self, path: str, data: bytes) -> None: ...

    def overwrite(self, path: str, text: str) -> None:
        """Write into an existing file in place; nothing happens when it is not there."""

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""

    def remove_dir(self, path: str) -> None:
        """Take a directory away with all that is in it, as far as that is possible."""

    def make_dir(self, path: str, mode: int = 0o755) -> None: ...

    def make_private_dir(self, path: str) -> None:
        """Make a directory of ours alone, 0700. Raises SystemFault when something else is there."""

    def refresh(self, path: str) -> None:
        """Set a file's time to now, making it if needed."""


class Machine(Clock, Network, Processes, Output, Files, Protocol):
    """The machine as the lifecycle sees it."""

    def gpu_count(self) -> int: ...

    def core_count(self) -> int: ...

    def raise_file_limit(self) -> None:
        """Allow this process as many open files as it may have: each peer takes three."""

    def draw_nonce(self) -> str: ...

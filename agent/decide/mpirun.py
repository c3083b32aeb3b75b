"""The mpirun command line for Open MPI 4 and 5, and what mpirun's exit status means."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agent.decide.mpi_environment import rank_environment
from agent.errors import Exit
from agent.launch import Launch


@dataclass(frozen=True, order=True)
class MpiVersion:
    """Version of an Open MPI installation."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


def parse_version(text: str) -> MpiVersion | None:
    """Read the output of `mpirun --version`; None when it is not Open MPI's (MPICH, Intel MPI, none)."""
    found = re.search(r"^mpirun \(Open MPI\) (\d+)\.(\d+)(?:\.(\d+))?", text, re.MULTILINE)
    return MpiVersion(int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


@dataclass(frozen=True)
class Mpi:
    """The mpirun of a pod. `version` is that of Open MPI; a `problem` says why it cannot be used."""

    program: str
    version: MpiVersion = MpiVersion(0, 0, 0)
    problem: str = ""


def read_mpi(program: str, text: str) -> Mpi:
    """The mpirun at `program`, whose `--version` prints `text`."""
    version = parse_version(text)
    if version is None:
        first = (text.strip().splitlines() or ["nothing"])[0][:200]
        return Mpi(program, problem=f"{program} is not Open MPI's mpirun: it says {first!r}")
    if version.major < 4:
        return Mpi(program, version, f"{program} is Open MPI {version}")
    return Mpi(program, version)


def mpi_of(inventory: Mapping[str, str] | None) -> Mpi | None:
    """The mpirun in the inventory of a pod (agent.machine.inventory); None when that says nothing of it."""
    inventory = inventory or {}
    program = inventory.get("mpirun", "mpirun")
    if problem := inventory.get("mpirun_problem"):
        return Mpi(program, problem=problem)
    text = inventory.get("mpirun_version_text")
    return None if text is None else read_mpi(program, text)


def mpirun_launch(
    *,
    version: MpiVersion,
    mpirun: str,
    hostfile: str | None,
    hosts: int,
    ranks: int,
    interface: str,
    ssh_command: Sequence[str],
    daemon_starter: Sequence[str] = (),
    program: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    oversubscribed: bool,
) -> Launch:
    """The launch that starts `ranks` ranks of `program`, slot by slot in the order of `hostfile`.

    `mpirun` should be an absolute path: the remote daemon is then found beside it, whatever PATH the remote
    session has. `hostfile=None` means this pod alone, without SSH. `env` is what every rank gets, less what
    `rank_environment` leaves out. `daemon_starter`: the command that starts mpirun's daemon on other pods, whose
    words follow. `oversubscribed`: some pod has more ranks than cores. ValueError for a version before 4 and for words
    of commands that mpirun would split.
    """
    if version.major < 4:
        raise ValueError(f"Open MPI {version} is too old: 4 and 5 are supported")
    kept = rank_environment(env)
    where = ["--host", f"localhost:{ranks}"] if hostfile is None else ["--hostfile", hostfile]
    runtime = {} if hostfile is None else _runtime(version, hosts, interface, ssh_command, daemon_starter)
    argv = [
        mpirun,
        "--allow-run-as-root",
        *where,
        *("-np", str(ranks)),
        *("--map-by", "slot"),
        *("--bind-to", "none"),  # the default binds two ranks to one core each, and NCCL's threads with them
        *("--wdir", cwd),
        *_parameters("--mca" if version.major == 4 else "--prtemca", runtime),
        *_parameters("--mca", _transport(version, hostfile is None, interface, oversubscribed)),
        *(word for name in kept.names for word in ("-x", name)),
        *program,
    ]
    # Open MPI 5 does not start without a home directory.
    return Launch(argv, {"HOME": "/root", **kept.env}, cwd, notes=_notes(kept.refused))


def _notes(refused: Mapping[str, str]) -> list[str]:
    if not refused:
        return []
    reasons = "; ".join(dict.fromkeys(refused.values()))
    return [f"MPI ranks do not get {', '.join(map(repr, sorted(refused)))}: {reasons}"]


def one_text(command: Sequence[str]) -> str:
    """A command as the one string that mpirun wants. ValueError when a word would not survive.

    Both versions cut this string at spaces, take ':' for the mark between alternatives, and know no quotes.
    """
    for word in command:
        if not word or re.search(r"[\s:'\"\\]", word):
            raise ValueError(f"mpirun cannot carry this word of a command: {word!r}")
    return " ".join(command)


def _parameters(option: str, values: Mapping[str, str]) -> list[str]:
    return [word for name, value in values.items() for word in (option, name, value)]


def _runtime(
    version: MpiVersion, hosts: int, interface: str, ssh_command: Sequence[str], daemon_starter: Sequence[str]
) -> dict[str, str]:
    """Parameters of the launcher: ORTE in Open MPI 4, PRRTE in 5. Unknown names are silently ignored there."""
    four = version.major == 4
    family, daemon = ("orte", "orted") if four else ("prte", "prted")
    plm = "plm_rsh" if four else "plm_ssh"
    values = {
        "plm": "rsh" if four else "ssh",  # never Slurm or LSF, though their variables may be about
        f"{plm}_agent": one_text(ssh_command),
        **({f"{family}_launch_agent": one_text([*daemon_starter, daemon])} if daemon_starter else {}),
        f"{plm}_no_tree_spawn": "1",  # only this pod opens SSH connections
        f"{plm}_num_concurrent": str(max(128, hosts)),
        f"{plm}_pass_environ_mca_params": "0",  # else OMPI_MCA_* values stand on remote command lines
        f"{family}_keep_fqdn_hostnames": "1",
        # A dead link is noticed after 10 + 3 x 5 s on both sides; the default is 480 s.
        "oob_tcp_keepalive_time": "10",
        "oob_tcp_keepalive_intvl": "5",
        "oob_tcp_keepalive_probes": "3",
    }
    if four:
        # Without tree spawn, daemons past the 64th would wait for parents that they cannot reach.
        return {**values, "routed": "direct", "oob_tcp_if_include": interface}
    return {
        **values,
        "routed_radix": str(max(64, hosts)),
        # Else PRRTE takes its own pod, whose peer name is not its host name, for one more remote host.
        "prte_do_not_resolve": "0",
        "prte_if_include": interface,
    }


def _transport(version: MpiVersion, alone: bool, interface: str, oversubscribed: bool) -> dict[str, str]:
    """Parameters of MPI itself: TCP on one interface, shared memory inside a pod, no RDMA library.

    Single-copy through process_vm_readv is off: without CAP_SYS_PTRACE it fails in the middle of a run.
    """
    shared = "vader" if version.major == 4 else "sm"
    values = {
        "pml": "ob1",
        "btl": f"self,{shared}" if alone else f"self,{shared},tcp",
        "coll": "^hcoll,ucc",
    }
    if version.major == 4:
        values["btl_vader_single_copy_mechanism"] = "none"
    else:
        values["smsc"] = "^cma,knem,xpmem"
    if not alone:
        values["btl_tcp_if_include"] = interface
    if oversubscribed:
        values["mpi_yield_when_idle"] = "1"
    return values


# What mpirun's status was, measured with 3 pods of 2 ranks, Debian's 4.1.4 and PyPI's 5.0.11 wheel:
#
#   what happened                                        4.1.4   5.0.11
#   all ranks ended 0                                    0       0
#   a rank ended k                                       k       k, or 14 when another rank saw it go first
#   a rank was killed by signal n                        128+n   128+n, or 14 likewise
#   MPI_Abort(k)                                         k       k
#   a rank ended 0 without MPI_Finalize                  1       1 or 14
#   remote daemon killed with SIGKILL                    205     0
#   remote daemon ended by SIGTERM                       205     255
#   program missing or not executable, as a path         132     183
#   program missing, as a name                           134     66
#   program that the kernel refuses (interpreter,        131     213
#     format, a directory)
#   working directory missing                            135     181 (and no message)
#   SSH refused, host key wrong, host unknown            255     255
#   SSH program missing                                  243     250
#   remote daemon's program missing                      127     127
#   not enough slots                                     1       1
#   network interface missing                            1       213
#   hostfile missing                                     1       250
#   unknown option                                       1       213
#   mpirun's own --timeout                               110     241
#   SIGTERM or SIGINT to mpirun                          1       1
#
# Open MPI 5.0.11 on a busy machine sometimes does not end at all: it forgets a rank that ended within milliseconds
# of its start (its daemon reaps it and reports nothing), and it can lock itself up when all ranks, daemons and SSH
# clients are gone.
#
# Many of these numbers can also be a rank's own, so what mpirun said goes before the number.
_PHRASES: tuple[tuple[str, Exit, str], ...] = (
    ("user-provided time limit for job execution has been reached", Exit.TIME_LIMIT, "mpirun's time limit"),
    ("lost communication with a remote daemon", Exit.TRY_AGAIN, "a pod or its Open MPI daemon was lost"),
    ("unable to find the specified executable file", Exit.MISSING_PROGRAM, "the program was not found"),
    (
        "unable to launch the specified application as it could not access",
        Exit.MISSING_PROGRAM,
        "the program is missing or not executable on a pod",
    ),
    (
        'via the "execve" system call but failed',
        Exit.MISSING_PROGRAM,
        "the kernel refused the program on a pod: not a program, or its interpreter is missing",
    ),
    (
        "unable to launch the specified application as it could not change to the specified working directory",
        Exit.MISSING_PROGRAM,
        "the working directory is missing on a pod",
    ),
    ("unable to reliably start one or more daemons", Exit.SYSTEM, "a pod's Open MPI daemon did not start"),
    ("A daemon failed to report back after being spawned", Exit.SYSTEM, "a pod's Open MPI daemon did not start"),
    ("There are not enough slots available", Exit.SYSTEM, "mpirun found fewer slots than ranks"),
    ("was set to a path that could not be found", Exit.SYSTEM, "mpirun did not find the SSH program"),
    ("out-of-band communications could be found", Exit.SYSTEM, "the network interface is not there"),
    ("No network interfaces were found", Exit.SYSTEM, "the network interface is not there"),
    ("unable to open the hostfile", Exit.SYSTEM, "mpirun could not read its hostfile"),
    ("An unrecognized option was included", Exit.BUG, "mpirun does not know an option that a4-agent gave it"),
    ('mpirun: Error: unknown option "', Exit.BUG, "mpirun does not know an option that a4-agent gave it"),
)

_NUMBERS: dict[int, dict[int, tuple[Exit, str]]] = {
    4: {
        110: (Exit.TIME_LIMIT, "mpirun's time limit"),
        131: (Exit.MISSING_PROGRAM, "the kernel refused the program on a pod"),
        132: (Exit.MISSING_PROGRAM, "the program is missing or not executable on a pod"),
        135: (Exit.MISSING_PROGRAM, "the working directory is missing on a pod"),
        205: (Exit.TRY_AGAIN, "a pod or its Open MPI daemon was lost"),
        243: (Exit.SYSTEM, "mpirun did not find the SSH program"),
        255: (Exit.SYSTEM, "a pod's Open MPI daemon did not start"),
    },
    5: {
        181: (Exit.MISSING_PROGRAM, "the working directory is missing on a pod"),
        183: (Exit.MISSING_PROGRAM, "the program is missing or not executable on a pod"),
        213: (Exit.SYSTEM, "mpirun could not start the ranks"),
        241: (Exit.TIME_LIMIT, "mpirun's time limit"),
        250: (Exit.SYSTEM, "mpirun did not find the SSH program or the hostfile"),
        255: (Exit.SYSTEM, "a pod's Open MPI daemon did not start"),
    },
}

# 128 + SIGQUIT, SIGILL and SIGBUS, and exit(-1): mpirun itself would have said what happened.
_OFTEN_A_RANKS_OWN = {131, 132, 135, 255}

SECONDARY = 14
"""Open MPI 5's status when a rank died because its connection to another, already dead one closed."""


class MpirunEnd(NamedTuple):
    """What an end of mpirun means: our exit code, one sentence, and whether the code is a rank's own."""

    code: int
    sentence: str
    of_rank: bool


def mpirun_end(version: MpiVersion, status: int, output: str = "", *, started: bool = False) -> MpirunEnd:
    """The meaning of mpirun's own `status`: 0 to 255, or -n when signal n killed it.

    Code 0 is no success: Open MPI 5 ends 0 after a daemon was killed, so only the ranks' record tells.
    `output` is what mpirun printed on both stdout and stderr (the end will do): Open MPI 5 reports a lost SSH
    connection on stdout. `started`: ranks are known to have run, so a daemon that "did not start" was lost.
    """
    found = _by_output(output)
    if found and started and found[0] == Exit.SYSTEM:
        found = Exit.TRY_AGAIN, "a pod or its Open MPI daemon was lost"
    found = found or _by_number(version, status, silent=not output.strip(), started=started)
    if found:
        return MpirunEnd(int(found[0]), f"{found[1]} (mpirun {version} ended {status})", of_rank=False)
    return MpirunEnd(*_rank_end(version, status, output), of_rank=status >= 0)


def _by_output(output: str) -> tuple[Exit, str] | None:
    text = " ".join(output.split())  # the two versions break their lines at different places
    return next(((code, sentence) for phrase, code, sentence in _PHRASES if phrase in text), None)


def _by_number(version: MpiVersion, status: int, *, silent: bool, started: bool) -> tuple[Exit, str] | None:
    if status in _OFTEN_A_RANKS_OWN and (started or not silent):
        return None
    found = _NUMBERS[min(version.major, max(_NUMBERS))].get(status)
    if found and started and found[0] not in (Exit.TRY_AGAIN, Exit.TIME_LIMIT):
        return None  # ranks that ran had their program: the number is a rank's own
    return found


def _rank_end(version: MpiVersion, status: int, output: str) -> tuple[int, str]:
    told = reported_end(output)
    if told and (status <= 0 or status == told[0]):  # <= 0: Open MPI 5 was ended because it hung, or is unreliable
        return told
    if status < 0:
        return 128 - status, f"mpirun was killed by signal {-status}"
    if status == 0:
        return 0, "mpirun ended 0, which proves nothing: the ranks' record decides"
    if status == SECONDARY and version.major >= 5:
        return status, "a rank lost its connection to another that ended first, or a rank ended 14"
    if 128 < status <= 128 + 64:
        return status, f"a rank was killed by signal {status - 128}, or ended {status}"
    return status, f"a rank ended {status}"


def without_notices(output: str) -> str:
    """What mpirun printed without its own notices, which it frames with two lines of dashes."""
    return re.sub(r"^-{60,}\n.*?^-{60,}\n", "", output, flags=re.MULTILINE | re.DOTALL)


def reported_end(output: str) -> tuple[int, str] | None:
    """(code, sentence) of the rank whose end mpirun reports in what it printed; None when it reports none."""
    text = " ".join(output.split())
    if found := re.search(r"process rank (\d+) with PID \d+ on node (\S+) exited on signal (\d+)", text):
        rank, node, number = found.groups()
        return 128 + int(number), f"rank {rank} on {node} was killed by signal {number}"
    if found := re.search(r"Process name: \[\S*,(\d+)\] Exit code: (\d+)", text):
        return int(found[2]), f"rank {found[1]} ended {found[2]}"
    return None

"""The mpirun command line for Open MPI 4, 5 and 6."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.decide.mpi_environment import KEPT_MCA, LAUNCHER_FRAMEWORKS, is_denied, rank_environment
from agent.decide.runspec import MpirunOptions
from agent.errors import UsageError
from agent.launch import Launch

PORTS = range(32768, 61000)
"""Where the kernel lets programs listen that ask for no port, such as daemons and NCCL. Ranks would take 1024 and what
follows, so a firewall would need one more rule."""


@dataclass(frozen=True, order=True)
class MpiVersion:
    """Version of an Open MPI: `major`.`minor`.`patch`. Versions can be compared."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


def parse_version(text: str) -> MpiVersion | None:
    """Read the output of `mpirun --version`; None when it is not Open MPI's (MPICH, Intel MPI, none)."""
    found = re.search(r"^mpirun \(Open MPI\) (\d+)\.(\d+)(?:\.(\d+))?", text, re.MULTILINE)
    return MpiVersion(int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


WITHIN_A_POD = re.compile(
    r"(?:slot|core|hwthread|l[123]cache|numa|socket|package)(?::(?:pe=\d+|(?:no)?oversubscribe)(?:,pe=\d+)?)?", re.I
)


def check_options(options: MpirunOptions) -> None:
    """Raises UsageError for what the agent cannot pass on."""
    if options.map_by and not WITHIN_A_POD.fullmatch(options.map_by):
        what = f"--map-by {options.map_by}: ranks are on the pods in the order of the plan, slot by slot"
        raise UsageError(what, "-N N puts N on each pod; core, numa, slot:PE=4 and the like are passed on")
    taken = [name for name, _ in options.mca if name.split("_")[0] in LAUNCHER_FRAMEWORKS]
    if taken:
        what = f"--mca {taken[0]}: a4-agent decides how mpirun reaches the pods"
        raise UsageError(what, "parameters of MPI itself, such as btl, are passed on")


@dataclass(frozen=True)
class Mpi:
    """The mpirun of a pod."""

    program: str
    """Absolute path."""
    version: MpiVersion = MpiVersion(0, 0, 0)
    """That of Open MPI."""
    problem: str = ""
    """Why it cannot be used; empty: it can."""


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
    options: MpirunOptions | None = None,
) -> Launch:
    """The launch that starts `ranks` ranks of `program`, slot by slot in the order of `hostfile`.

    `mpirun` should be an absolute path: the remote daemon is then found beside it, whatever PATH the remote
    session has. `hostfile=None` means this pod alone, without SSH. `env` is what every rank gets, less what
    `rank_environment` leaves out. `daemon_starter`: the command that starts mpirun's daemon on other pods, whose
    words follow. `oversubscribed`: some pod has more ranks than cores. `options` go before the agent's own. Raises
    ValueError for a version before 4 and for words of commands that mpirun would split.
    """
    if version.major < 4:
        raise ValueError(f"Open MPI {version} is too old: 4 or later is needed")
    kept, own = rank_environment(env), options or MpirunOptions()
    forwarded = sorted(name for name in kept if not name.startswith(KEPT_MCA))
    refused = sorted(name for name in env if name not in kept and not is_denied(name))
    where = ["--host", f"localhost:{ranks}"] if hostfile is None else ["--hostfile", hostfile]
    transport = {**_transport(version, hostfile is None, interface, oversubscribed), **dict(own.mca)}
    runtime = {} if hostfile is None else _runtime(version, hosts, interface, ssh_command, daemon_starter)
    argv = [
        mpirun,
        "--allow-run-as-root",
        *where,
        *("-np", str(ranks)),
        *("--map-by", own.map_by or "slot"),
        # The default binds two ranks to one core each, and NCCL's threads with them.
        *("--bind-to", own.bind_to or "none"),
        *(_TAGGED[version.major >= 5] if own.tag else ()),
        *("--wdir", cwd),
        *_parameters("--mca" if version.major == 4 else "--prtemca", runtime),
        *_parameters("--mca", transport),
        *(word for name in forwarded for word in ("-x", name)),
        *program,
    ]
    taken = "mpirun's -x takes names of letters, digits and _ only"
    notes = [f"MPI ranks do not get {', '.join(map(repr, refused))}: {taken}"] if refused else []
    # Open MPI 5 does not start without a home directory.
    return Launch(argv, {"HOME": "/root", **kept}, cwd, notes=notes)


_TAGGED = (("--tag-output",), ("--output", "tag"))
"""With Open MPI 4, and with 5."""


def one_text(command: Sequence[str]) -> str:
    """A command as the one string that mpirun wants. ValueError when a word would not survive.

    Both versions cut this string at spaces, take ':' for the mark between alternatives, and know no quotes.
    """
    for word in command:
        if not word or re.search(r"[\s:'\"\\]", word):
            raise ValueError(f"mpirun cannot pass on this argument: {word!r}")
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
    keepalive = "prte_keepalive" if version.major >= 6 else "oob_tcp_keepalive"
    values = {
        "plm": "rsh" if four else "ssh",  # never Slurm or LSF, though their variables may be about
        f"{plm}_agent": one_text(ssh_command),
        **({f"{family}_launch_agent": one_text([*daemon_starter, daemon])} if daemon_starter else {}),
        f"{plm}_no_tree_spawn": "1",  # only this pod opens SSH connections
        f"{plm}_num_concurrent": str(max(128, hosts)),
        f"{plm}_pass_environ_mca_params": "0",  # else OMPI_MCA_* values stand on remote command lines
        f"{family}_keep_fqdn_hostnames": "1",
        # A dead link is noticed after 10 + 3 x 5 s on both sides; the default is 480 s.
        f"{keepalive}_time": "10",
        f"{keepalive}_intvl": "5",
        f"{keepalive}_probes": "3",
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
        for family in ("v4", "v6"):
            values |= {f"btl_tcp_port_min_{family}": str(PORTS[0]), f"btl_tcp_port_range_{family}": str(len(PORTS))}
    if oversubscribed:
        values["mpi_yield_when_idle"] = "1"
    return values

"""What mpirun's exit status and words mean, of Open MPI 4 and 5."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from agent.decide.mpirun import MpiVersion
from agent.decide.ranks import RankEnd
from agent.errors import Exit

Row = TypeVar("Row")
NONE_RECORDED: Mapping[int, RankEnd] = {}

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
# Many of these numbers can also be a rank's own, so what mpirun said goes before the number. But ranks that run can
# print the same words: then these count beside the numbers above alone.
_NO_DAEMON = "a pod's Open MPI daemon did not start"
_LOST = (Exit.TRY_AGAIN, "a pod or its Open MPI daemon was lost")
_SAID_WITH: dict[int, dict[Exit, tuple[int, ...]]] = {
    4: {Exit.TIME_LIMIT: (110,), Exit.TRY_AGAIN: (0, 205, 255), Exit.MISSING_PROGRAM: (131, 132, 134, 135)},
    5: {Exit.TIME_LIMIT: (241,), Exit.TRY_AGAIN: (0, 205, 255), Exit.MISSING_PROGRAM: (66, 181, 183, 213)},
}
_PHRASES: tuple[tuple[str, Exit, str], ...] = (
    ("user-provided time limit for job execution has been reached", Exit.TIME_LIMIT, "mpirun's time limit"),
    ("lost communication with a remote daemon", *_LOST),
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
    ("unable to reliably start one or more daemons", Exit.SYSTEM, _NO_DAEMON),
    ("A daemon failed to report back after being spawned", Exit.SYSTEM, _NO_DAEMON),
    ("There are not enough slots available", Exit.SYSTEM, "mpirun found fewer slots than ranks"),
    ("was set to a path that could not be found", Exit.SYSTEM, "mpirun did not find the SSH program"),
    ("out-of-band communications could be found", Exit.SYSTEM, "the network interface does not exist"),
    ("No network interfaces were found", Exit.SYSTEM, "the network interface does not exist"),
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
        205: _LOST,
        243: (Exit.SYSTEM, "mpirun did not find the SSH program"),
        255: (Exit.SYSTEM, _NO_DAEMON),
    },
    5: {
        181: (Exit.MISSING_PROGRAM, "the working directory is missing on a pod"),
        183: (Exit.MISSING_PROGRAM, "the program is missing or not executable on a pod"),
        213: (Exit.SYSTEM, "mpirun could not start the ranks"),
        241: (Exit.TIME_LIMIT, "mpirun's time limit"),
        250: (Exit.SYSTEM, "mpirun did not find the SSH program or the hostfile"),
        255: (Exit.SYSTEM, _NO_DAEMON),
    },
}

# 128 + SIGQUIT, SIGILL and SIGBUS, and exit(-1): mpirun itself would have said what happened.
_OFTEN_A_RANKS_OWN = {131, 132, 135, 255}

SECONDARY = 14
"""Open MPI 5's status when a rank died because its connection to another, already dead one closed."""


class MpirunEnd(NamedTuple):
    """What an end of mpirun means."""

    code: int
    """The exit code to end with."""
    sentence: str
    """What happened."""
    of_rank: bool
    """The code is a rank's own."""


def mpirun_end(
    version: MpiVersion,
    status: int,
    output: str = "",
    *,
    started: bool = False,
    ranks: Mapping[int, RankEnd] = NONE_RECORDED,
) -> MpirunEnd:
    """The meaning of mpirun's own `status`: 0 to 255, or -n when signal n killed it.

    Code 0 does not prove success: Open MPI 5 ends with 0 after it has lost a pod, so only the ranks' record tells.
    `output` is what mpirun printed on both stdout and stderr (the end will do): Open MPI 5 reports a lost SSH
    connection on stdout. `started`: ranks are known to have run, so a daemon that "did not start" was lost, and
    they may have printed words of mpirun. `ranks`: what is recorded of them.
    """
    text = " ".join(output.split())  # the two versions break their lines at different places
    found = next(((code, sentence) for phrase, code, sentence in _PHRASES if phrase in text), None)
    if found and started:
        found = _LOST if found[1] == _NO_DAEMON else found
        found = found if status in _of(_SAID_WITH, version).get(found[0], ()) else None
    found = found or _by_number(version, status, silent=not output.strip(), started=started)
    if found:
        return MpirunEnd(int(found[0]), f"{found[1]} (mpirun {version} ended with exit code {status})", of_rank=False)
    return MpirunEnd(*_rank_end(version, status, reported_end(output, ranks)), of_rank=status >= 0)


def _of(table: Mapping[int, Row], version: MpiVersion) -> Row:
    return table[min(version.major, max(table))]


def _by_number(version: MpiVersion, status: int, *, silent: bool, started: bool) -> tuple[Exit, str] | None:
    if status in _OFTEN_A_RANKS_OWN and (started or not silent):
        return None
    found = _of(_NUMBERS, version).get(status)
    if found and started and found[0] not in (Exit.TRY_AGAIN, Exit.TIME_LIMIT):
        return None  # ranks that ran had their program: the number is a rank's own
    return found


def _rank_end(version: MpiVersion, status: int, told: tuple[int, str] | None) -> tuple[int, str]:
    if told and (status <= 0 or status == told[0]):  # <= 0: Open MPI 5 was ended because it hung, or is unreliable
        return told
    if status < 0:
        return 128 - status, f"mpirun was killed by signal {-status}"
    if status == 0:
        return 0, "mpirun ended with exit code 0, which proves nothing: the ranks' record decides"
    if status == SECONDARY and version.major >= 5:
        return status, "a rank lost its connection to another that ended first, or a rank ended with exit code 14"
    if 128 < status <= 128 + 64:
        return status, f"a rank was killed by signal {status - 128}, or ended with exit code {status}"
    return status, f"a rank ended with exit code {status}"


def without_notices(output: str) -> str:
    """What mpirun printed without its own notices, which it frames with two lines of dashes."""
    return re.sub(r"^-{60,}\n.*?^-{60,}\n", "", output, flags=re.MULTILINE | re.DOTALL)


_REPORT = re.compile(
    r"process rank (?P<killed>\d+) with PID \d+ on node (?P<node>\S+) exited on signal (?P<signal>\d+)"
    r"|Process name: \[\S*,(?P<ended>\d+)\] Exit code: (?P<code>\d+)"
)


def reported_end(output: str, ranks: Mapping[int, RankEnd] = NONE_RECORDED) -> tuple[int, str] | None:
    """(code, sentence) of the rank whose end mpirun reports in what it printed; None when it reports none.

    What the records of `ranks` deny was printed by a rank.
    """
    for found in _REPORT.finditer(" ".join(output.split())):
        rank = int(found["killed"] or found["ended"])
        code = 128 + int(found["signal"]) if found["signal"] else int(found["code"])
        if rank in ranks and ranks[rank].code not in (None, code):
            continue
        if found["signal"]:
            return code, f"rank {rank} on {found['node']} was killed by signal {found['signal']}"
        return code, f"rank {rank} ended with exit code {code}"
    return None


def lost_daemon(output: str) -> tuple[int, str]:
    """The daemon that mpirun says it has lost: the place of its pod in the hostfile, from 1 on, and the name of its
    host. 0 and empty where they are not said."""
    number = re.search(r"Remote daemon\s*: \[\S+,(\d+)\] on node ", output)
    host = re.search(r"Remote host:\s+(\S+)", output)
    return int(number[1]) if number else 0, host[1] if host else ""

"""Exit codes and the errors that carry them.

AgentError              what failed, what to do about it, and the exit code it means
├── UsageError          2   the command line
├── MissingProgram      66  a needed program or file is not there
├── PeersMissing        69  peers that did not come before the deadline
├── SystemFault         71  the operating system said no: port in use, sshd or mpirun will not start
├── DirectoryUnusable   73  a results or shared directory, a file or stdout that cannot be written
├── ClusterBusy         75  something else is running: try again
├── PeerLost            75  a peer or the coordinator is gone
├── IdentityRefused     77  a peer with a wrong host key, or one that refuses ours
├── PodsDiffer          78  pods of one run that differ where they must not
└── SettingsError       78  every wrong or missing setting at once
"""

from __future__ import annotations

from enum import IntEnum, unique


@unique
class Exit(IntEnum):
    """The exit codes of the agent by name (docs/exit-codes.md)."""

    OK = 0
    USAGE = 2
    WRONG_RESULT = 65
    MISSING_PROGRAM = 66
    PEERS_MISSING = 69
    BUG = 70
    SYSTEM = 71
    DIRECTORY = 73
    TRY_AGAIN = 75
    IDENTITY = 77
    SETTINGS = 78
    LIVES_OVER = 79
    NO_PROGRESS = 80
    TIME_LIMIT = 124
    INTERRUPTED = 130
    TERMINATED = 143

    def __str__(self) -> str:
        """The number: Python 3.10 would say the name."""
        return str(int(self))


READER_GONE = 141
"""What a shell says of `a4-agent … | head`: the reader of the output has gone."""


class AgentError(Exception):
    """What failed (`what`), what to do about it (`hint`), and the exit `code`; the base of all errors of the agent.

    What the pod's agent refuses is an AgentError itself, or ClusterBusy, with the code of the refusal.
    """

    code: Exit = Exit.BUG

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what}\n  {self.hint}" if self.hint else self.what


class UsageError(AgentError):
    """The request is invalid."""

    code = Exit.USAGE


class MissingProgram(AgentError):
    """A program or file is missing."""

    code = Exit.MISSING_PROGRAM


class PeersMissing(AgentError):
    """The cluster is not formed, or no agent runs here."""

    code = Exit.PEERS_MISSING


class SystemFault(AgentError):
    """The operating system refuses: a busy port, a daemon that does not start."""

    code = Exit.SYSTEM


class DirectoryUnusable(AgentError):
    """Results, shared state, a file that a command writes, or stdout cannot be written."""

    code = Exit.DIRECTORY


class ClusterBusy(AgentError):
    """Another run has the cluster, or another agent lives in this pod."""

    code = Exit.TRY_AGAIN


class PeerLost(AgentError):
    """A pod, or the agent that was asked, is lost."""

    code = Exit.TRY_AGAIN


class IdentityRefused(AgentError):
    """A pod shows a wrong host key, or refuses the job's key."""

    code = Exit.IDENTITY


class PodsDiffer(AgentError):
    """Pods of a run differ where they must not; the text is a table that names the odd ones."""

    code = Exit.SETTINGS


class SettingsError(AgentError):
    """The settings are wrong; `problems` lists all that is."""

    code = Exit.SETTINGS

    def __init__(self, problems: list[str], hint: str = "") -> None:
        self.problems = problems
        if len(problems) == 1:
            super().__init__(problems[0], hint)
        else:
            lines = [f"{len(problems)} settings are wrong:", *(f"  - {line}" for line in problems)]
            super().__init__("\n".join(lines), hint)

"""Which variables of the shell that a command is typed in travel with its run to every pod."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from agent.decide.environment import NAME, is_named
from agent.decide.mpi_environment import is_denied

STAYS = (
    # The agent's own: it read its settings when it started.
    "A4_*",
    # One login's.
    "HOME", "USER", "LOGNAME", "SHELL", "MAIL", "XDG_*", "DBUS_*", "DISPLAY", "XAUTHORITY",
    # Of the program that opened the shell.
    "KUBECTL_*", "VSCODE_*",
    # The terminal's.
    "TERM_*", "COLORTERM", "TMUX*", "STY", "WINDOW",
    # The shell's.
    "PS0", "PS1", "PS2", "PS3", "PS4", "PROMPT_COMMAND", "HIST*", "LS_COLORS", "LESSOPEN", "LESSCLOSE", "COMP_*",
    "BASHOPTS", "SHELLOPTS",
)  # fmt: skip
"""What stays where it is, beside what MPI ranks never get: names or, with a star at the end, beginnings of names."""
OF_A_RUN = ("NNODES", "WORLD_SIZE", "NODE_RANK", "MASTER_ADDR")
"""What a shell inside a run has from that run: another run that it begins has its own."""


def travelling(
    shell: Mapping[str, str], agent: Mapping[str, str], container: Mapping[str, str], of_runs: Collection[str]
) -> dict[str, str]:
    """The variables of `shell` that its user has set.

    They differ both from what the agent was started with and from what every process of the container starts with:
    a launcher may have given the agent a better PATH than `kubectl exec` gives a shell, which is not the user's doing.
    `of_runs`: the settings that a run may have of its own.
    """
    of_a_run = OF_A_RUN if "A4_RUN" in shell else ()
    return {
        name: value
        for name, value in shell.items()
        if value not in (agent.get(name), container.get(name)) and name not in of_a_run
        if not stays(name, of_runs)
    }


def stays(name: str, of_runs: Collection[str]) -> bool:
    """Does this variable belong to one shell, one login or one pod? Or has it a name that mpirun cannot carry?"""
    of_a_pod = name not in of_runs and (is_named(name, STAYS) or is_denied(name))
    return of_a_pod or not NAME.fullmatch(name)


def unheard(
    shell: Mapping[str, str],
    agent: Mapping[str, str],
    container: Mapping[str, str],
    settings: Iterable[str],
    of_runs: Collection[str],
) -> list[str]:
    """A sentence on each of `settings` that the shell's user has set in vain: the agent took its own at its start."""
    return [
        f"{name}={shell[name]} of this shell has no effect: it is a setting of the pod, and was "
        + (agent.get(name) or "not set")
        + " when the agent started"
        for name in settings
        if name in shell and shell[name] not in (agent.get(name), container.get(name)) and stays(name, of_runs)
    ]

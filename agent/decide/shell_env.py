"""Which variables of the shell that a command is typed in travel with its run to every pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.decide.environment import is_named
from agent.decide.mpi_environment import is_denied, refusal

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
TRAVELS = (
    "A4_PYTHON",
    "A4_NCCL_TESTS_DIR",
    "A4_WRONG_NETWORK",
    "A4_TRAIN_AGAIN",
    "A4_CONVERT_ON",
    "A4_KEEP_TRAINING",
    "A4_MODEL_SOURCE",
    "A4_MODEL_REVISION",
    "A4_DATASET_URL",
    "A4_PAI_REPOSITORY",
    "A4_PAI_COMMIT",
)
"""Settings that a run may have of its own; MASTER_PORT is another, under its old name."""


def travelling(shell: Mapping[str, str], agent: Mapping[str, str], container: Mapping[str, str]) -> dict[str, str]:
    """The variables of `shell` that its user has set.

    They differ both from what the agent was started with and from what every process of the container starts with:
    a launcher may have given the agent a better PATH than `kubectl exec` gives a shell, which is not the user's doing.
    """
    of_a_run = OF_A_RUN if "A4_RUN" in shell else ()
    return {
        name: value
        for name, value in shell.items()
        if value != agent.get(name) and value != container.get(name) and not stays(name, value) and name not in of_a_run
    }


def stays(name: str, value: str = "") -> bool:
    """Does this variable belong to one shell, one login or one pod?"""
    if name in TRAVELS:
        return bool(refusal(name, value))
    return is_named(name, STAYS) or is_denied(name) or bool(refusal(name, value))


def unheard(
    shell: Mapping[str, str], agent: Mapping[str, str], container: Mapping[str, str], settings: Iterable[str]
) -> list[str]:
    """A sentence on each of `settings` that the shell's user has set in vain: the agent took its own at its start."""
    return [
        f"{name}={shell[name]} of this shell has no effect: it is a setting of the pod, and was "
        + (agent.get(name) or "not set")
        + " when the agent started"
        for name in settings
        if name in shell and shell[name] not in (agent.get(name), container.get(name)) and stays(name, shell[name])
    ]

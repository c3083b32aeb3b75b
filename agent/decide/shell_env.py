"""Which variables of the shell that a command is typed in travel with its run to every pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.decide.mpi_environment import denial, refusal

# Name or, with a star at its end, beginning of names: why it stays where it is. Beside what MPI ranks never get.
STAYS = {
    "A4_*": "the agent's own: it read its settings when it started",
    "HOME": "one login's",
    "USER": "one login's",
    "LOGNAME": "one login's",
    "SHELL": "one login's",
    "MAIL": "one login's",
    "XDG_*": "one login's",
    "DBUS_*": "one login's",
    "DISPLAY": "one login's",
    "XAUTHORITY": "one login's",
    "KUBECTL_*": "of the program that opened the shell",
    "VSCODE_*": "of the program that opened the shell",
    "TERM_*": "the terminal's",
    "COLORTERM": "the terminal's",
    "TMUX*": "the terminal's",
    "STY": "the terminal's",
    "WINDOW": "the terminal's",
    "PS0": "the shell's",
    "PS1": "the shell's",
    "PS2": "the shell's",
    "PS3": "the shell's",
    "PS4": "the shell's",
    "PROMPT_COMMAND": "the shell's",
    "HIST*": "the shell's",
    "LS_COLORS": "the shell's",
    "LESSOPEN": "the shell's",
    "LESSCLOSE": "the shell's",
    "COMP_*": "the shell's",
    "BASHOPTS": "the shell's",
    "SHELLOPTS": "the shell's",
}
TRAVELS = (
    "A4_PYTHON",
    "A4_NCCL_TESTS_DIR",
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
_BEGINNINGS = tuple(name[:-1] for name in STAYS if name.endswith("*"))


def travelling(shell: Mapping[str, str], agent: Mapping[str, str], container: Mapping[str, str]) -> dict[str, str]:
    """The variables of `shell` that its user has set.

    They differ both from what the agent was started with and from what every process of the container starts with:
    a launcher may have given the agent a better PATH than `kubectl exec` gives a shell, which is not the user's doing.
    """
    return {
        name: value
        for name, value in shell.items()
        if value != agent.get(name) and value != container.get(name) and not stays(name, value)
    }


def stays(name: str, value: str = "") -> bool:
    """Does this variable belong to one shell, one login or one pod?"""
    if name in TRAVELS:
        return bool(refusal(name, value))
    return bool(name in STAYS or name.startswith(_BEGINNINGS) or denial(name) or refusal(name, value))


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

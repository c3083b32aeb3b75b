"""Which variables of a shell go with its runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.commands.shell_env import stays, travelling, unheard

OF_RUNS = ("A4_PYTHON",)
"""Settings that a run may have of its own."""
CONTAINER = {"PATH": "/bin", "LD_LIBRARY_PATH": "/usr/lib", "NCCL_DEBUG": "WARN", "NNODES": "4"}
AGENT = CONTAINER | {"LD_LIBRARY_PATH": "/usr/local/gib/lib64:/usr/lib", "A4_RUN_DIR": "/run/a4-agent"}


def test_what_the_user_sets_travels() -> None:
    own = {"NCCL_DEBUG": "INFO", "MY_SWITCH": "1", "HF_TOKEN": "hf_12345678", "EMPTY": ""}
    assert travelling(CONTAINER | own, AGENT, CONTAINER, OF_RUNS) == own
    assert travelling(AGENT | {"B": "b"}, AGENT, {}, OF_RUNS) == {"B": "b"}, "what is equal to the agent's stays"


def test_what_a_run_has_given_to_its_shell_stays() -> None:
    shell = CONTAINER | {"NNODES": "2", "WORLD_SIZE": "4", "MASTER_ADDR": "pod-2"}
    assert travelling(shell | {"A4_RUN": "script-1a2b", "B": "b"}, AGENT, CONTAINER, OF_RUNS) == {"B": "b"}
    assert travelling(shell, AGENT, CONTAINER, OF_RUNS).keys() == {"NNODES", "WORLD_SIZE", "MASTER_ADDR"}


def test_what_a_launcher_made_better_is_not_undone() -> None:
    """`kubectl exec` starts a shell with the container's variables, not with those of the launcher."""
    assert travelling(CONTAINER, AGENT, CONTAINER, OF_RUNS) == {}


OWN = """
HOSTNAME TERM PS1 SSH_CONNECTION SSH_TTY KUBECTL_REMOTE_COMMAND_WEBSOCKETS KUBERNETES_PORT A4_RUN A4_SECRET_FILE
A4_RUN_DIR PWD OLDPWD SHLVL _ HOME USER RANK LOCAL_RANK JOB_COMPLETION_INDEX POD_IP OMPI_COMM_WORLD_RANK PMIX_ID
BASH_FUNC_which%% LS_COLORS HISTFILE COLORTERM TERM_PROGRAM TMUX_PANE XDG_RUNTIME_DIR a.b
"""
"""Variables that a shell, a login or a pod sets for itself."""


OTHERS = """
PATH LD_LIBRARY_PATH PYTHONPATH VIRTUAL_ENV NCCL_DEBUG CUDA_VISIBLE_DEVICES HF_TOKEN LC_ALL OMPI_MCA_btl_tcp_links
TORCH_LOGS HOMEPAGE TERMINAL_VELOCITY
"""
"""What a program may need."""


def test_which_variables_stay() -> None:
    own, others = [*OWN.split(), "", "no name"], OTHERS.split()
    assert [name for name in [*own, *others] if stays(name, OF_RUNS)] == own
    assert travelling(dict.fromkeys(own, "x"), {}, {}, OF_RUNS) == {}
    shell = dict.fromkeys(others, "x")
    assert travelling(shell, dict.fromkeys(others, "y"), {}, OF_RUNS) == shell


ENVIRONMENT = st.dictionaries(st.sampled_from(["A", "B", "PATH", "TERM", "A4_X", "RANK"]), st.sampled_from("xyz"))


@given(ENVIRONMENT, ENVIRONMENT, ENVIRONMENT)
def test_nothing_is_invented(shell: dict[str, str], agent: dict[str, str], container: dict[str, str]) -> None:
    found = travelling(shell, agent, container, OF_RUNS)
    assert found.items() <= shell.items()
    assert not found.items() & agent.items()
    assert set(found) <= {"A", "B", "PATH"}
    assert travelling(found, agent, container, OF_RUNS) == found


@pytest.mark.parametrize(
    ("name", "value", "heard"),
    [
        ("A4_PROFILE", "a3-tcpx", False),
        ("A4_PROFILE", "auto", True),  # as the agent has it
        ("A4_BASELINES", "/mine.json", False),
        ("A4_PYTHON", "/opt/python", True),  # holds for a run
        ("A4_SHELL_ENV", "1", True),  # no setting
    ],
)
def test_a_setting_that_nobody_hears(name: str, value: str, heard: bool) -> None:
    settings = ("A4_PROFILE", "A4_BASELINES", "A4_PYTHON")
    said = unheard({name: value}, {"A4_PROFILE": "auto"}, {}, settings, OF_RUNS)
    assert [sentence.partition("=")[0] for sentence in said] == [name] * (not heard)


def test_the_sentence_says_what_holds() -> None:
    (one, other) = unheard(
        {"A4_PROFILE": "none", "A4_LOCATION": "/a"}, {"A4_PROFILE": "auto"}, {}, ("A4_PROFILE", "A4_LOCATION"), OF_RUNS
    )
    assert "A4_PROFILE=none of this shell has no effect" in one and "was auto when" in one
    assert "was not set when" in other

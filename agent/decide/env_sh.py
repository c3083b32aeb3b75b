"""The files by which shells get the workload's environment. Whatever a value holds, no shell executes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from agent.decide.environment import NAME

MARK = "A4_SHELL_ENV"
"""Set where the environment is already: a shell inside keeps what its user has changed."""
# A shell's or a terminal's own; the rest are variables that bash lets nobody set, or that would change how it reads.
NOT_EXPORTED = {
    *("_", "SHLVL", "PWD", "OLDPWD", "TERM", "COLUMNS", "LINES"),
    *("UID", "EUID", "PPID", "GROUPS", "IFS", "PS4", "SHELLOPTS", "BASHOPTS", "BASH_ENV", "ENV", "POSIXLY_CORRECT"),
    *("BASH_VERSINFO", "BASH_ARGC", "BASH_ARGV", "BASH_LINENO", "BASH_SOURCE", "FUNCNAME", "DIRSTACK"),
    *(MARK, "A4_RUN"),
}


def quoted(value: str) -> str:
    """One word of a shell, newlines and all."""
    return "'" + value.replace("'", "'\\''") + "'"


def exports(env: Mapping[str, str], unset: Iterable[str] = ()) -> str:
    """Shell text that sets and unsets variables."""
    kept = {name: env[name] for name in sorted(env) if NAME.fullmatch(name) and name not in NOT_EXPORTED}
    gone = [name for name in sorted(unset) if NAME.fullmatch(name) and name not in NOT_EXPORTED]
    lines = [f"unset {name}" for name in gone] + [f"export {name}={quoted(value)}" for name, value in kept.items()]
    return "".join(f"{line}\n" for line in lines)


def env_sh(env: Mapping[str, str], unset: Iterable[str], is_secret: Callable[[str, str], bool]) -> str:
    """<run dir>/env.sh: the environment for shells of this pod, without secrets."""
    secret = sorted(name for name, value in env.items() if is_secret(name, value))
    shown = {name: value for name, value in env.items() if name not in secret}
    left_out = f"# Left out, for they hold secrets: {', '.join(map(repr, secret))}\n" if secret else ""
    return f"""\
# The environment of workloads in this pod, for shells; a4-agent writes it at each start.
{left_out}if [ -z "${{{MARK}-}}" ]; then
{exports(shown, unset)}export {MARK}=1
# mpirun by hand, as root:
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
command -v torchrun >/dev/null 2>&1 || torchrun() {{
    # PATH may have changed since.
    if (unset -f torchrun; command -v torchrun) >/dev/null 2>&1; then command torchrun "$@"; return; fi
    echo 'a4-agent: there is no torchrun on PATH; on all pods: a4-agent torchrun -- PROGRAM' >&2
    return 127
}}
"""


def hook(path: str) -> str:
    """Lines for /etc/bash.bashrc and /etc/profile.d; they do nothing where `path` cannot be read."""
    return f"if [ -r {quoted(path)} ]; then . {quoted(path)}; fi\n"


def forwarder(path: str) -> str:
    """The text of /tmp/export_init_env.sh, which old guides source: it loads the environment again, or says why not."""
    return f"""\
# Old guides source this file; a4-agent writes it at each start. What it leads to is root's alone.
if [ -r {quoted(path)} ]; then
    unset {MARK}
    . {quoted(path)}
else
    echo {quoted(f"a4-agent: {path} cannot be read: only root may, once the agent has prepared the pod")} >&2
    false
fi
"""

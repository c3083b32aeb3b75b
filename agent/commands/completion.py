"""`a4-agent completion`: a script for a shell, which asks this command again what may stand where one types."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from agent.catalogue import RUNNABLE, WORKLOADS
from agent.commands import VERBS, Parser, build_parser
from agent.errors import AgentError
from agent.paths import RunDir
from agent.workloads import find_workload

DESCRIPTION = """\
Prints what a shell needs to complete verbs, options, arguments of workloads, pods, runs and clusters.
  bash: source <(a4-agent completion bash)
  zsh:  source <(a4-agent completion zsh)
  fish: a4-agent completion fish | source
For every shell, in an image that has bash-completion:
  a4-agent completion bash > /usr/share/bash-completion/completions/a4-agent
The scripts ask: a4-agent completion words -- WORD ...
"""
A_COMMAND = ":command"
"""In place of words: a command of the shell may stand here."""

SCRIPTS = {
    "bash": """\
_a4_agent() {
    mapfile -t COMPREPLY < <(a4-agent completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [[ ${COMPREPLY[0]-} == :command* ]]; then
        mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")
    fi
    COMPREPLY=("${COMPREPLY[@]%%$'\\t'*}")
}
complete -o bashdefault -o default -F _a4_agent a4-agent
""",
    "zsh": """\
#compdef a4-agent
_a4_agent() {
    local line
    local -a lines found
    lines=("${(@f)$(a4-agent completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ $lines[1] == :command* ]]; then
        _command_names -e
    elif [[ -z $lines[1] ]]; then
        _files
    else
        for line in $lines; do
            found+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
        done
        _describe a4-agent found
    fi
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
compdef _a4_agent a4-agent
""",
    "fish": """\
function __a4_agent_words
    set -l typed (commandline -opc) (commandline -ct)
    set -l found (a4-agent completion words -- $typed[2..] 2>/dev/null)
    if string match -q ":command*" -- $found[1]
        __fish_complete_command
    else if test (count $found) = 0
        __fish_complete_path (commandline -ct)
    else
        printf '%s\\n' $found
    end
end
complete -c a4-agent -f -a '(__a4_agent_words)'
""",
}


def add_options(parser: Parser) -> None:
    parser.takes_rest = "words go after `--`: {} words -- WORD …"
    parser.add_argument("shell", choices=(*SCRIPTS, "words"), help="the shell to print it for")


def run(args: argparse.Namespace) -> int:
    if args.shell in SCRIPTS:
        sys.stdout.write(SCRIPTS[args.shell])
    else:
        for word, text in offered(args.rest):
            sys.stdout.write(f"{word}\t{' '.join(text.split())}\n")
    return 0


Words = list[tuple[str, str]]
"""What may be typed, each with a few words about it."""


def offered(typed: Sequence[str]) -> Words:
    """What may stand for the last of the words that are typed after `a4-agent`."""
    *before, current = [word for word in typed if word != "="] or [""]  # for bash an = is a word
    if typed and typed[-1] == "=":
        before, current = [*before, current], ""
    parser, verb, words = _of_verb(before)
    if "--" in words:
        rest = words[words.index("--") + 1 :]
        if parser.takes_command or verb == "local exec":
            return [] if rest else [(A_COMMAND, "")]
        return _of_workload(verb, words, rest, current)
    waiting = parser.option(words[-1]) if words else None
    if waiting is not None and waiting.nargs is None:
        return _of_value(verb, waiting, current)  # the option before takes a value
    if parser.takes_command and parser.begin(words) < len(words):
        return []  # of the command that has begun
    if parser.takes_command and not current.startswith("-"):
        return [(A_COMMAND, "")]
    if current.startswith("-"):
        shown = (one for one in parser.actions if one.help is not argparse.SUPPRESS)
        options = ((name, one.help or "") for one in shown for name in one.option_strings)
        return _beginning(current, options)
    if parser.verbs:
        texts = {name: inner.description or "" for name, inner in parser.verbs.items()} if verb else VERBS
        return _beginning(current, texts.items())
    return [word for one in parser.actions if not one.option_strings for word in _of_value(verb, one, current)]


def _of_verb(words: Sequence[str]) -> tuple[Parser, str, list[str]]:
    """The parser of the verb that is being typed, the verb, such as "local exec", and what follows it."""
    begin = next((at for at, word in enumerate(words) if word in VERBS), 0)  # after --color VALUE
    rest = list(words[begin:])
    parser = build_parser(*rest[:1])
    verb: list[str] = []
    while rest and rest[0] in parser.verbs:
        verb.append(rest.pop(0))
        parser = parser.verbs[verb[-1]]
    return parser, " ".join(verb), rest


def _of_workload(verb: str, words: Sequence[str], rest: Sequence[str], current: str) -> Words:
    """What may follow `--`: options of a workload and their values."""
    workload = next((word for word in (verb, *words) if word in RUNNABLE), "")
    if verb not in ("run", "local run", workload) or not workload:
        return []

    options = find_workload(workload).options
    given = next((one for one in options if rest and rest[-1] in one.names), None)
    if given is None:
        return _beginning(current, [(name, one.help) for one in options for name in one.names])
    return _beginning(current, [(word, "") for word in given.choices or given.several], several=bool(given.several))


def _of_value(verb: str, action: argparse.Action, current: str) -> Words:
    """What an option or argument takes; nothing where only the user can know."""
    if action.choices:
        return _beginning(current, [(str(choice), "") for choice in action.choices])
    find = VALUES.get(f"{verb} {action.dest}") or VALUES.get(action.dest)
    return _beginning(current, find(), several=action.metavar == "LIST") if find else []


def _beginning(current: str, words: Iterable[tuple[str, str]], *, several: bool = False) -> Words:
    """Those that begin with what has been typed, or with its last item where that is a list (`several`). The shell
    would filter too, but not all of them do."""
    head, comma, last = current.rpartition(",") if several else ("", "", current)
    return [(f"{head}{comma}{word}", text) for word, text in words if word.startswith(last)]


def _runs() -> Words:
    """Runs that this pod has files of, without asking the agent: completion must not wait for it."""

    from agent.commands.pod import read_state

    directory = RunDir()
    found = os.listdir(directory.runs) if os.path.isdir(directory.runs) else []  # isdir: users may not look everywhere
    ids = sorted(name for name in found if os.path.isdir(directory.run(name)))
    state = None
    with suppress(AgentError):
        state = read_state(directory)
    named = [(run.name, run.command) for run in state.known_runs if run.name and run.id in ids] if state else []
    return [*named, *((name, "run") for name in ids)]


def _pods() -> Words:
    """Pods of the plan, once there is one."""
    from agent.environment import find_plan

    plan = find_plan(RunDir())
    return [(str(peer.index), peer.name) for peer in plan.peers] if plan else []


def _clusters() -> Words:
    from agent.workbench.local.sockets import running_clusters

    return [(name, "local cluster") for name in running_clusters()]


def _settings() -> Words:
    from agent.settings import SETTINGS

    return [(one.name, one.help) for one in SETTINGS]


VALUES: dict[str, Callable[[], Words]] = {
    "run": _runs,
    "report results": _runs,
    "pod": _pods,
    "hosts": _pods,
    "exclude": _pods,
    "workload": lambda: [(name, WORKLOADS[name].help) for name in RUNNABLE],
    "settings names": _settings,
    **{f"local {verb} name": _clusters for verb in ("exec", "cp", "logs", "down", "status")},
}
"""What the value of an option or argument may be, by its name, that of its verb in front where others differ."""

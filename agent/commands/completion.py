"""`a4-agent completion bash`: a script generated from the parsers of all verbs."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterable, Iterator

from agent.catalogue import RUNNABLE
from agent.commands import VERBS, build_parser
from agent.paths import DEFAULT_RUN_DIR

DESCRIPTION = """\
Prints what bash needs to complete verbs, options, workloads and ids of runs. For this shell:
  source <(a4-agent completion bash)
For every shell, in an image that has bash-completion:
  a4-agent completion bash > /usr/share/bash-completion/completions/a4-agent
"""
COMMANDS = ("exec", "mpirun", "torchrun")
"""Verbs that end in a command of the user's own."""

# `verb` becomes the words that say what is being typed: "run", "local exec". Words of a command come after the
# first word that is neither an option nor an option's value, as for the agent itself.
SCRIPT = """\
# bash completion of a4-agent; printed by: a4-agent completion bash

_a4_agent_runs() {
    local run
    for run in "${A4_RUN_DIR:-@RUN_DIR@}"/runs/*/; do
        run=${run%/}
        [[ -d $run ]] && printf '%s\\n' "${run##*/}"
    done 2>/dev/null
}

_a4_agent_words() {  # what may stand after these verbs
    case $1 in
@WORDS@
    esac
}

_a4_agent_values() {  # what may be the value of this verb's option; fails when the option has none
    case "$1 $2" in
@VALUES@
    *) return 1 ;;
    esac
}

_a4_agent() {
    local current=${COMP_WORDS[COMP_CWORD]} verb= word values at
    COMPREPLY=()
    for ((at = 1; at < COMP_CWORD; at++)); do
        word=${COMP_WORDS[at]}
        if [[ $word == -- ]]; then
            [[ $at -eq $((COMP_CWORD - 1)) && " @COMMANDS@ " == *" $verb "* ]] &&
                mapfile -t COMPREPLY < <(compgen -c -- "$current")
            return
        elif [[ $word == -* ]]; then
            values=$(_a4_agent_values "$verb" "$word") || continue
            [[ ${COMP_WORDS[at + 1]} == = ]] && ((at++))
            ((at + 1 < COMP_CWORD)) && { ((at++)); continue; }
            [[ $current == = ]] && current=
            mapfile -t COMPREPLY < <(compgen -W "$values" -- "$current")
            return
        elif [[ -z $verb || $verb == local || $verb == sync ]]; then
            verb=${verb:+$verb }$word
        elif [[ " @COMMANDS@ " == *" $verb "* ]]; then
            return
        fi
    done
    values=$(_a4_agent_words "$verb")
    [[ $verb == logs || $verb == cancel || $verb == report ]] && values+=" $(_a4_agent_runs)"
    [[ " @COMMANDS@ " == *" $verb "* && $current != -* ]] && mapfile -t COMPREPLY < <(compgen -c -- "$current")
    mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W "$values" -- "$current")
}

complete -o bashdefault -o default -F _a4_agent a4-agent
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "completion", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shell", choices=("bash",), help="the shell to print it for")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    sys.stdout.write(script())
    return 0


def script() -> str:
    """The whole script."""
    words, values = [], []
    for verbs, parser in _parsers(build_parser(*VERBS), ""):
        words.append(_case([verbs], _words(parser)))
        options: dict[tuple[object, ...], list[str]] = {}
        for action in parser._actions:
            if action.option_strings and action.nargs is None:
                options.setdefault(tuple(action.choices or ()), []).extend(action.option_strings)
        values += [_case([f"{verbs} {name}" for name in names], choices) for choices, names in options.items()]
    text = SCRIPT.replace("@WORDS@", "\n".join(words)).replace("@VALUES@", "\n".join(values))
    return text.replace("@RUN_DIR@", DEFAULT_RUN_DIR).replace("@COMMANDS@", " ".join(COMMANDS))


def _case(patterns: Iterable[str], words: Iterable[object]) -> str:
    return f"    {' | '.join(map(shlex.quote, patterns))}) echo {shlex.quote(' '.join(map(str, words)))} ;;"


def _parsers(parser: argparse.ArgumentParser, verbs: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every parser with the verbs that lead to it."""
    yield verbs, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from _parsers(inner, f"{verbs} {name}".strip())


def _words(parser: argparse.ArgumentParser) -> list[object]:
    words: list[object] = [option for action in parser._actions for option in action.option_strings]
    for action in parser._actions:
        if not action.option_strings:
            words += RUNNABLE if action.dest == "workload" else action.choices or ()
    return words

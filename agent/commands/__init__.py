"""The verbs of the command line, one module each. Only the verb that is asked for is imported.

Such a module has a DESCRIPTION, EXAMPLES or an epilog with examples, `add_options(parser)`, and `run(args)`, which
returns the exit code. One with a class `Help` adds --help itself.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import groupby
from typing import Any, NoReturn

from agent import __version__
from agent.decide.words import did_you_mean
from agent.errors import READER_GONE, AgentError, Exit, UsageError
from agent.output import BAD, choose_color, toned

LAST_GROUP = "Other"
GROUPS = {
    "Run on all pods": {
        "run": "run a workload; as ENTRYPOINT of a pod, form the cluster first",
        "exec": "run a command; output that is the same is shown once",
        "mpirun": "run your own program as MPI ranks",
        "torchrun": "run your own program under torchrun",
    },
    "When a run hangs, fails or is slow": {
        "why": "why a run is stuck: which rank holds up the others, and where",
        "doctor": "check the health of the pods: GPUs, network, limits, disks",
        "find-slow": "find the pod, GPU or link that is slow or hangs",
    },
    "Runs and their results": {
        "status": "what this pod is doing, and with whom",
        "logs": "print the output of a run",
        "get": "fetch the results and logs of a run from all its pods",
        "cancel": "end a run on every pod",
        "report": "make a page of one run, or one that compares several",
    },
    LAST_GROUP: {
        "bundle": "one file for a ticket, from all pods, without secrets",
        "peers": "the pods of this job, in rank order",
        "topology": "each pod's rank, node and place",
        "hostfile": "the MPI hostfile",
        "env": "the environment of workloads, and what a fabric profile changes in it",
        "settings": "every setting, its value and where it came from",
        "sync": "wait for other pods: set, wait, fail",
        "release": "end a sleeping cluster with its recorded exit code",
        "local": "a cluster of pod-like sandboxes on this machine",
        "completion": "shell completion for bash, zsh and fish",
        "version": "versions of the agent and of the programs it calls",
    },
}
"""The verbs, with a line for each. Those of the last group are only named where all verbs are listed."""
VERBS = {name: text for group in GROUPS.values() for name, text in group.items()}
ELSEWHERE = {
    "ps": "status", "runs": "status", "squeue": "status", "sacct": "status", "top": "status --watch",
    "nodes": "peers", "pods": "peers", "sinfo": "peers", "scancel": "cancel RUN", "stop": "cancel RUN",
    "kill": "cancel RUN", "srun": "exec -- COMMAND", "ssh": "exec --hosts POD -- COMMAND", "compare": "report RUN RUN",
    "sbatch": "torchrun --detach -- PROGRAM", "attach": "logs RUN",
}  # fmt: skip
"""Verbs of Slurm and of other tools, and what to type here (docs/from-slurm.md)."""
EPILOG = """\
Add --help to a verb to learn more. To try it on this machine:
  a4-agent local run --pods 4 connectivity
"""


def dispatch(argv: Sequence[str]) -> int:
    """Run the verb in `argv`; returns the exit code. Prints errors, raises none but bugs."""
    if argv[:1] == ["help"]:
        argv = [*argv[1:], "--help"]
    verb = next((word for word in argv if word in VERBS), "")
    parser = build_parser(verb, alone=argv[:1] == [verb])
    try:
        args = parser.parse_args(argv)
        handler: Callable[[argparse.Namespace], int] | None = getattr(args, "handler", None)
        if handler is None:
            parser.print_help()
            return 0
        return handler(args)
    except AgentError as error:
        print(toned(f"a4-agent: {error}", BAD), file=sys.stderr)
        return int(error.code)
    except BrokenPipeError:
        return READER_GONE  # the reader of our output has gone, as `| head` does
    except Exception:
        import traceback

        traceback.print_exc()
        print("a4-agent: this is a bug in a4-agent; please report it with the lines above", file=sys.stderr)
        return int(Exit.BUG)
    except KeyboardInterrupt:
        return int(Exit.INTERRUPTED)


def build_parser(*verbs: str, alone: bool = False) -> Parser:
    """The parser, with the options and arguments of `verbs`. Other verbs are only listed, for help and for messages;
    with `alone` they are left out, which saves a third of a millisecond for each."""
    parser = _TopParser(
        prog="a4-agent",
        usage="a4-agent [-h] [--version] [--color WHEN] VERB ...",
        description="Brings the pods of a GPU JobSet together and runs workloads on all of them.",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"a4-agent {__version__}")
    text = (
        "colour in messages: auto (on a terminal unless NO_COLOR is set, or anywhere if FORCE_COLOR is), always, never"
    )
    _add_color(parser, help=text)
    subparsers = parser.add_subparsers(metavar="VERB", prog=parser.prog, parser_class=Parser)
    for name, text in VERBS.items():
        if name in verbs:
            verb = import_module(f"agent.commands.{name.replace('-', '_')}")
            inner = subparsers.add_parser(
                name, help=text, description=verb.DESCRIPTION, add_help=not hasattr(verb, "Help")
            )
            verb.add_options(inner)
            if hasattr(verb, "EXAMPLES"):
                inner.epilog = "examples:\n" + textwrap.indent(verb.EXAMPLES, "  ")
            inner.set_defaults(handler=verb.run)
            _add_color_to_all(inner)
        elif not alone:
            subparsers.add_parser(name, help=text, add_help=False)
    return parser


class _Color(argparse.Action):
    """Counts at once, as for a refusal of the words after it."""

    def __call__(self, parser: object, namespace: object, values: Any, option_string: str | None = None) -> None:
        choose_color(values)


def _add_color(parser: argparse.ArgumentParser, help: str) -> None:
    parser.add_argument("--color", action=_Color, choices=("auto", "always", "never"), help=help)


def _add_color_to_all(parser: Parser) -> None:
    """It may follow the verb, too, where help does not repeat it."""
    _add_color(parser, help=argparse.SUPPRESS)
    for name, inner in parser.verbs.items():
        if name != "exec":  # the command of `local exec` may have a --color of its own
            _add_color_to_all(inner)


class _Help(argparse.HelpFormatter):
    """Breaks texts where the terminal ends. Lines with several spaces, as in lists and examples, stay lines; what is
    too long of one goes on under its last column."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        wrap = partial(textwrap.wrap, width=width, initial_indent=indent, break_on_hyphens=False)
        filled: list[str] = []
        for is_row, lines in groupby(text.rstrip().splitlines(), lambda line: "  " in line or not line):
            for line in lines if is_row else [" ".join(lines)]:
                column = max((found.end() for found in re.finditer(" {2,}", line)), default=0)
                filled += wrap(line, subsequent_indent=indent + " " * column) or [""]
        return "\n".join(filled)


class Parser(argparse.ArgumentParser):
    """Says of a mistyped word what may have been meant. Options have to be written in full.

    A command, or arguments for a workload, are kept apart, where argparse would look for our options among them. Both
    are found as `args.rest`.
    """

    takes_command = ""
    """A command begins at the first word that is neither an option nor an option's value, or after `--`, and must not
    be left out; this is an example of one. Empty: there is none."""
    takes_rest = ""
    """Arguments begin after `--`; this says so to who leaves it out. Empty: there are none."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Help, **options, allow_abbrev=False)
        self.verbs: Mapping[str, Parser] = {}
        """The parsers of its verbs."""

    def add_subparsers(self, **options: Any) -> Any:
        added = super().add_subparsers(**options)
        self.verbs = added.choices
        return added

    def _get_option_tuples(self, option_string: str) -> list[Any]:
        """Without beginnings of options of one dash, which argparse takes for them also without `allow_abbrev`."""
        found: list[Any] = super()._get_option_tuples(option_string)
        return [one for one in found if option_string.startswith(one[1])]

    @property
    def actions(self) -> list[argparse.Action]:
        """Its options and arguments, verbs left out. argparse has no public name for them."""
        return [one for one in self._actions if not self.verbs or one.choices is not self.verbs]

    def option(self, word: str) -> argparse.Action | None:
        """The option that is written so."""
        return next((one for one in self.actions if word in one.option_strings), None)

    def error(self, message: str) -> NoReturn:
        """Say in a line what is wrong and where help is, and what may have been meant; exit with 2."""
        if found := re.fullmatch(r"argument VERB: invalid choice: '?(.*?)'? \(choose from .*\)", message):
            message, meant = f"there is no verb {found[1]!r}", self._verb_meant(found[1])
        else:
            meant = self._meant(message)
        what, newline, hint = f"{message}{meant}".partition("\n")
        see = f"{' ' if what.endswith('?') else '; '}see {self.prog} --help"
        self.exit(int(Exit.USAGE), toned(f"{self.prog}: error: {what}{see}", BAD) + f"{newline}{hint}\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = list(args if args is not None else sys.argv[1:])
        at = len(words)
        if self.takes_command:
            at = self.begin(words)
        elif self.takes_rest and "--" in words:
            at = words.index("--")
        own = words[:at]
        if self.takes_command or self.takes_rest:
            own = [self._with_value(words, at) for at in range(len(own))]
        found, unknown = super().parse_known_args(own, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        if self.takes_command or self.takes_rest:
            found.rest = words[at + 1 :] if words[at : at + 1] == ["--"] else words[at:]
        if self.takes_command and not found.rest:
            verb = self.prog.rpartition(" ")[2]
            raise UsageError(f"{verb} needs a command", f"for example: {self.prog} -- {self.takes_command}")
        return found, unknown

    def _with_value(self, words: Sequence[str], at: int) -> str:
        """The word there; an option whose value is optional would take what comes next for it, whatever that is."""
        option = self.option(words[at])
        alone = option is not None and option.nargs == "?" and not self._values(words, at)
        return f"{words[at]}={option.const}" if option is not None and alone else words[at]

    def _values(self, words: Sequence[str], at: int) -> int:
        """How many words are values of the option there. One whose value is optional takes a number alone."""
        option = self.option(words[at])
        if option is None or isinstance(option.nargs, int):
            return 0 if option is None else int(option.nargs or 0)
        following = "".join(words[at + 1 : at + 2])
        if following == "--":
            return 0
        return int(option.nargs is None or (option.nargs == "?" and following.isdecimal()))

    def begin(self, words: Sequence[str]) -> int:
        """Where the command begins, or its "--"; the number of words when there is none."""
        at = 0
        while at < len(words) and words[at] not in ("-", "--") and words[at].startswith("-"):
            at += 1 + self._values(words, at)
        return at

    def _verb_meant(self, word: str) -> str:
        """Workloads are easily typed as verbs."""
        from agent.catalogue import RUNNABLE  # here: only mistakes need it

        verbs = {name: name for name in self.verbs}
        if "run" in verbs:
            verbs = {**{name: f"{self.prog} run {name}" for name in RUNNABLE}, **verbs}
        if "cancel" in verbs and word in ELSEWHERE:
            return f"; type {self.prog} {ELSEWHERE[word]}"
        return f"; type {verbs[word]}" if word in verbs else did_you_mean(word, verbs, verbs)

    def _meant(self, message: str) -> str:
        if found := re.fullmatch(r".*invalid choice: '?(.*?)'? \(choose from (.*)\)", message):
            return did_you_mean(found[1], re.findall(r"[\w.-]+", found[2]))
        if not message.startswith("unrecognized arguments"):
            return ""
        meant = ""
        if found := re.match(r"unrecognized arguments: --([^\s=]+)", message):
            options = [name[2:] for one in self.actions for name in one.option_strings if name.startswith("--")]
            if self.takes_rest:  # it may be an option of the workload: --steps is not a slip for --hosts
                options = [name for name in options if name[0] == found[1][0]]
            begun = next((name for name in options if len(found[1]) > 2 and name.startswith(found[1])), "")
            meant = did_you_mean(begun or found[1], options).replace(" mean ", " mean --")
        if self.takes_command:
            return f"{meant}\n  options of the command itself go after it: {self.prog} -- COMMAND --option"
        return f"{meant}\n  {self.takes_rest.format(self.prog)}" if self.takes_rest else meant


class _TopParser(Parser):
    """Lists all verbs."""

    def format_help(self) -> str:
        """The verbs by group. With the options, which the usage has, they would not fit into 24 lines."""
        lines = []
        for title, verbs in GROUPS.items():
            if title == LAST_GROUP:
                lines.append(f"{title}:  {', '.join(verbs)}")
            else:
                lines += [f"{title}:  ", *(f"  {name:<10}  {text}" for name, text in verbs.items())]
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        for text in (self.description, "\n".join(lines), self.epilog):
            formatter.add_text(text)
        return formatter.format_help()

"""Options that several verbs share, and what they mean as a RunSpec."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any, TypeVar

from agent.catalogue import WORKLOADS
from agent.commands import Parser
from agent.decide.run_names import run_name, run_note
from agent.decide.runspec import RunSpec
from agent.decide.setting_values import none_or, whole
from agent.errors import UsageError
from agent.workloads import find_workload

Value = TypeVar("Value")
MOST_PODS = 100_000
WAIT_SECONDS = 86400
WORKLOAD_ARGUMENTS = "arguments of the workload go after `--`: {} WORKLOAD -- ARGUMENT …"


def checked(parse: Callable[[str], Value]) -> Callable[[str], Value]:
    """A type for argparse that says what it takes."""

    def read(text: str) -> Value:
        try:
            return parse(text)
        except ValueError as wanted:
            raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}") from None

    return read


count = checked(whole(1, MOST_PODS))


def pods(text: str) -> list[str]:
    """The items of a list such as `0,2-5,some-name`."""
    items = [item.strip() for item in text.split(",")]
    if not all(items):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of pods such as 0,2-5")
    return items


def add_subset(parser: argparse.ArgumentParser) -> None:
    """Which pods: --nodes, --hosts, --exclude."""
    group = parser.add_argument_group("which pods (default: all)")
    add = group.add_argument
    add("--nodes", type=count, default=0, metavar="N", help="only the first N in rank order")
    several: dict[str, Any] = {"type": pods, "action": "extend", "default": [], "metavar": "LIST"}
    add("--hosts", **several, help="only these: indices, ranges, names, such as 0,2-5")
    add("--exclude", **several, help="not these")


def take_command(parser: Parser, what: str, epilog: str, example: str) -> None:
    """Have a verb end in a command of the user's own; `what`: what its help calls that."""
    parser.usage = f"{parser.prog} [-h] [options] [--] {what} [ARGUMENT ...]"
    parser.epilog = epilog
    parser.takes_command = example


def add_run(parser: argparse.ArgumentParser) -> None:
    """What every run can have: a subset of pods, limits, a name, --dry-run."""
    add_subset(parser)
    seconds = checked(none_or("3600"))
    limits = parser.add_argument_group("limits (default: what the pod's settings say; 0: none)")
    limits.add_argument("--timeout", type=seconds, metavar="SECONDS", help="end the run after this (124)")
    limits.add_argument(
        "--stall-timeout", type=seconds, metavar="SECONDS", help="end it when it is silent for this long"
    )
    add_labels(parser)
    parser.add_argument("--dry-run", action="store_true", help="print what would be started and touch nothing")


def add_gate(parser: argparse.ArgumentParser) -> None:
    """Whether the run's pods must be healthy."""
    text = "look at its pods first, as a4-agent doctor does: with a fatal finding it does not begin (65)"
    parser.add_argument("--gate", action="store_true", help=text)
    text = "with --gate: nor where a check could not look"
    parser.add_argument("--strict", action="store_true", help=text)


def gate(args: argparse.Namespace) -> str:
    """As a RunSpec says it. Raises UsageError."""
    if args.strict and not args.gate:
        raise UsageError("--strict needs --gate", "a4-agent run --gate --strict WORKLOAD")
    return ("strict" if args.strict else "on") if args.gate else ""


def add_labels(parser: argparse.ArgumentParser, name: str = "--name") -> None:
    """By what people know the run again."""
    text = "what to call it in place of its id; -2 or the like is added if a run has that name"
    parser.add_argument(name, dest="run_name", type=checked(run_name), metavar="NAME", help=text)
    text = "a line about it that status and its results show"
    parser.add_argument("--note", type=checked(run_note), default="", metavar="TEXT", help=text)


def add_without(parser: argparse.ArgumentParser) -> None:
    """The rank that is debugged."""
    text = "start all ranks but this one, and say how to start it in a terminal: to debug it"
    parser.add_argument("--without", type=checked(whole(0, MOST_PODS)), action="append", metavar="RANK", help=text)


def without(args: argparse.Namespace) -> int | None:
    """The rank of --without. Raises UsageError for several."""
    if args.without and args.without[1:]:
        raise UsageError(f"--without names one rank, not {' and '.join(map(str, args.without))}")
    return args.without[0] if args.without else None


def add_which_run(parser: argparse.ArgumentParser) -> None:
    """The run that a verb is about."""
    text = "the run's name or id, as a4-agent status shows them"
    parser.add_argument("run", nargs="?", default="", metavar="RUN", help=text)


def instead(what: str) -> Callable[[str], str]:
    """A type for an option that a launcher has and the agent does not: says what to type instead."""

    def refuse(text: str) -> str:
        raise argparse.ArgumentTypeError(what)

    return refuse


def add_following(parser: argparse.ArgumentParser, label: str = "its pod", *also: str) -> None:
    """How its output is shown, or that it is not; `label`: what stands before each line with --label, or `also`."""
    parser.add_argument("--label", *also, action="store_true", help=f"prefix each line with {label}")
    parser.add_argument("--detach", action="store_true", help="print the run's id and return at once")
    parser.add_argument(
        "--wait",
        nargs="?",
        type=checked(none_or("3600")),
        const=float(WAIT_SECONDS),
        default=0.0,
        metavar="SECONDS",
        help=f"wait for the current run, at most SECONDS ({WAIT_SECONDS} if not given)",
    )
    text = "the end of the run as JSON; what it prints goes to stderr"
    parser.add_argument("--json", action="store_true", help=text)


def read_spec(args: argparse.Namespace, workload: str, *, ranks: int = 0, per_node: int = 0) -> RunSpec:
    """What the command line says of a run. Raises UsageError."""
    return RunSpec(
        workload=workload,
        args=tuple(args.rest),
        nodes=args.nodes,
        hosts=tuple(args.hosts),
        exclude=tuple(args.exclude),
        ranks=ranks,
        per_node=per_node,
        cwd=working_directory(),
        timeout=args.timeout,
        stall=args.stall_timeout,
        name=args.run_name or "",
        note=args.note,
        gate=gate(args) if "gate" in args else "",
    )


def working_directory() -> str:
    """Raises UsageError when it has been removed."""
    try:
        return os.getcwd()
    except OSError as error:
        raise UsageError("the directory of this shell is gone", "cd to one that is there on every pod") from error


def workload_parser(name: str) -> Parser:
    """The options of a workload, for help and completion. What is typed is read by the workload itself."""
    workload = find_workload(name)
    rest = f"All other arguments go to {workload.passes_on}. " if workload.passes_on else ""
    parser = Parser(
        prog=f"a4-agent run {name}",
        usage=f"a4-agent run [options] {name}{' [-- ARGUMENT ...]' if workload.options or rest else ''}",
        description=WORKLOADS[name].help,
        epilog=f"{rest}a4-agent run --help has the options of every run.",
        add_help=False,
    )
    group = parser.add_argument_group("arguments, after --")
    for one in workload.options:
        default = f" (default: {one.defaults})" if one.default else ""
        group.add_argument(*one.names, metavar=one.value, help=one.help.replace("%", "%%") + default)
    return parser

"""Options that several verbs share, and what they mean as a RunSpec."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from agent.catalogue import WORKLOADS
from agent.commands import Parser
from agent.decide.run_names import run_name, run_note
from agent.decide.runspec import RunSpec
from agent.decide.setting_values import MOST_LIVES, none_or, whole
from agent.errors import UsageError
from agent.workloads import find_workload

Value = TypeVar("Value")
MOST_PODS = 100_000
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


def add_seconds(parser: Any, option: str, parse: Callable[[str], float], text: str, *also: str, **how: Any) -> None:
    """An option whose value is a time, as `parse` reads it, or with a unit, as 1h; `also`: how else it is written,
    `how`: its default and the like."""

    def read(written: str) -> float:
        length = unit_seconds(written)
        try:
            return parse(written if length is None else str(length))
        except ValueError as wanted:
            raise ValueError(f"{wanted}, or with a unit, such as 1h") from None

    parser.add_argument(option, *also, type=checked(read), metavar="SECONDS", help=text, **how)


def unit_seconds(text: str) -> int | None:
    """How long 90s, 10m, 2h or 1d is; None for what is not such a time."""
    length = re.fullmatch(r"(\d{1,7})([smhd])", text, re.ASCII)
    return int(length[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[length[2]] if length else None


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
    seconds = none_or("3600")
    limits = parser.add_argument_group("limits (default: what the pod's settings say; 0: none)")
    add_seconds(limits, "--timeout", seconds, "end the run after this (124)")
    add_seconds(limits, "--stall-timeout", seconds, "end the run if it prints nothing for this long")
    add_labels(parser)
    parser.add_argument("--dry-run", action="store_true", help="print what would be started, without starting anything")


def add_labels(parser: argparse.ArgumentParser, name: str = "--name") -> None:
    """By what people know the run again."""
    text = "name for the run, usable instead of its id; -2, -3, … is added if the name is taken"
    parser.add_argument(name, dest="run_name", type=checked(run_name), metavar="NAME", help=text)
    text = "one-line note, shown by status and in the results"
    parser.add_argument("--note", type=checked(run_note), default="", metavar="TEXT", help=text)


def add_which_run(parser: argparse.ArgumentParser) -> None:
    """The run that a verb is about."""
    text = "the run's name or id, as a4-agent status shows them"
    parser.add_argument("run", nargs="?", default="", metavar="RUN", help=text)


def add_followed_run(parser: argparse.ArgumentParser, label: str = "its pod", *also: str) -> None:
    """What a run can have that has the cluster for itself: a look at its pods before, and how its output is shown.
    `label`: what stands before each line with --label, or `also`."""
    add_run(parser)
    text = "check the pods first, as a4-agent doctor does, and refuse the run on a fatal finding (65)"
    parser.add_argument("--gate", action="store_true", help=text)
    text = "start the run again, on the same cluster, up to N times after a pod or rank is lost (default: A4_LIVES)"
    parser.add_argument("--lives", type=checked(whole(0, MOST_LIVES)), metavar="N", help=text)
    text = "with --gate: also refuse if a check could not run"
    parser.add_argument("--strict", action="store_true", help=text)
    parser.add_argument("--label", *also, action="store_true", help=f"prefix each line with {label}")
    parser.add_argument("--detach", action="store_true", help="print the run's id and return at once")
    text = "if another run is in progress, wait for it, at most SECONDS (86400 if not given)"
    add_seconds(parser, "--wait", none_or("3600"), text, nargs="?", const=86400.0, default=0.0)
    text = "print how the run ended as JSON; its output goes to stderr"
    parser.add_argument("--json", action="store_true", help=text)


def add_launched_run(
    parser: argparse.ArgumentParser, instead: Mapping[tuple[str, ...], str], label: str = "its pod", *also: str
) -> None:
    """The same for a program of the user's own under a launcher. `instead`: options that the launcher has and the
    agent does not, and what to type in their place."""
    for names, what in instead.items():
        parser.add_argument(*names, type=_refusing(what), help=argparse.SUPPRESS)
    text = "start all ranks but this one, and print how to start it in a terminal, for debugging"
    parser.add_argument("--without", type=checked(whole(0, MOST_PODS)), action="append", metavar="RANK", help=text)
    add_followed_run(parser, label, *also)


def _refusing(what: str) -> Callable[[str], str]:
    def refuse(text: str) -> str:
        raise argparse.ArgumentTypeError(what)

    return refuse


def read_spec(args: argparse.Namespace, workload: str) -> RunSpec:
    """What the command line says of a run. Raises UsageError."""
    gate, strict, without = (getattr(args, name, None) for name in ("gate", "strict", "without"))
    if strict and not gate:
        raise UsageError("--strict needs --gate", "a4-agent run --gate --strict WORKLOAD")
    if without and without[1:]:
        raise UsageError(f"--without names one rank, not {' and '.join(map(str, without))}")
    return RunSpec(
        workload=workload,
        args=tuple(args.rest),
        nodes=args.nodes,
        hosts=tuple(args.hosts),
        exclude=tuple(args.exclude),
        cwd=working_directory(),
        timeout=args.timeout,
        stall=args.stall_timeout,
        name=args.run_name or "",
        note=args.note,
        without=without[0] if without else None,
        gate=("strict" if strict else "on") if gate else "",
        lives=getattr(args, "lives", None),
    )


def working_directory() -> str:
    """Raises UsageError when it has been removed."""
    try:
        return os.getcwd()
    except OSError as error:
        raise UsageError(
            "the current directory of this shell no longer exists", "cd to one that exists on every pod"
        ) from error


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

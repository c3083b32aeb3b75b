"""`a4-agent hostfile`: the hostfile of this job, for any tool that wants one."""

from __future__ import annotations

import argparse
import os
import sys

from agent.commands.options import add_subset
from agent.commands.pod import guessed_plan
from agent.decide.hostfile import hostfile
from agent.decide.plan import Plan
from agent.decide.subset import subset
from agent.environment import look, read_plan
from agent.errors import AgentError, Exit
from agent.machine import files
from agent.settings import read_settings


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("hostfile", description="Prints the Open MPI hostfile of this job.")
    parser.add_argument("--slots", type=_slots, metavar="N", help="ranks per pod (default: GPUs per pod)")
    parser.add_argument(
        "--order",
        choices=("topology", "index"),
        default="topology",
        help="as planned (default), or by pod index, for which no plan is needed",
    )
    add_subset(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write it there instead of stdout")
    parser.add_argument("--json", action="store_true", help="a list of {name, slots}")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    whole = read_plan() if args.order == "topology" else _by_index()
    plan = subset(whole, nodes=args.nodes, hosts=args.hosts, exclude=args.exclude, lost={})
    names, slots = [peer.name for peer in plan.peers], args.slots or plan.slots
    if args.json:
        import json

        text = json.dumps([{"name": name, "slots": slots} for name in names], indent=1) + "\n"
    else:
        text = hostfile(names, slots)
    if args.output:
        _write(args.output, text)
    else:
        sys.stdout.write(text)
    return 0


def _by_index() -> Plan:
    found, _ = look(os.environ)
    settings, _ = read_settings(os.environ, found)
    return guessed_plan(settings)


def _write(path: str, text: str) -> None:
    path = os.path.abspath(path)
    try:
        # /dev/stdout or a FIFO is written into: put in its place, a file would break it for everyone.
        if os.path.exists(path) and not os.path.isfile(path):
            files.append(path, text.encode())
        else:
            files.write(path, text)
    except OSError as error:
        failed = AgentError(f"{path} cannot be written: {error.strerror}")
        failed.code = Exit.DIRECTORY
        raise failed from error


def _slots(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 1024:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1024")
    return int(text)

"""`a4-agent torchrun`: a program of one's own under torchrun on the pods of the plan."""

from __future__ import annotations

import argparse

from agent.commands import VerbParser
from agent.commands.following import submit
from agent.commands.options import add_following, add_run, command_parser, count, need_command, read_spec
from agent.commands.pod import run_dir

DESCRIPTION = """\
Runs PROGRAM under torchrun on all pods: static rendezvous, node ranks and MASTER_ADDR from the plan, one
process per GPU. PROGRAM is what torchrun takes: a script, or -m and a module. What all pods print is shown
here line by line; the first pod that fails ends the others, and its exit code is ours.
"""
EPILOG = """\
examples:
  a4-agent torchrun -- train.py --batch-size 8
  a4-agent torchrun --nodes 2 --nproc-per-node 4 --label -- -m package.train
"""


def add_parser(subparsers: argparse._SubParsersAction[VerbParser]) -> None:
    parser = command_parser(subparsers, "torchrun", "PROGRAM", DESCRIPTION, EPILOG)
    parser.add_argument(
        "--nproc-per-node", type=count, default=0, metavar="N", help="processes per pod (default: its GPUs)"
    )
    add_run(parser)
    add_following(parser)
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """The exit code is that of the first pod that failed. Raises AgentError."""
    program = need_command(args.rest, "torchrun", "train.py")
    spec = read_spec(args, "torchrun", program, per_node=args.nproc_per_node)
    return submit(args, spec, run_dir())

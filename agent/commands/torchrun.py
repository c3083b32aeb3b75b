"""`a4-agent torchrun`: a program of one's own under torchrun on the pods of the plan."""

from __future__ import annotations

import argparse

from agent.commands import Parser
from agent.commands.following import submit
from agent.commands.options import add_following, add_run, count, read_spec, take_command

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


def add_options(parser: Parser) -> None:
    take_command(parser, "PROGRAM", EPILOG, example="train.py")
    parser.add_argument(
        "--nproc-per-node", type=count, default=0, metavar="N", help="processes per pod (default: its GPUs)"
    )
    add_run(parser)
    add_following(parser)


def run(args: argparse.Namespace) -> int:
    """The exit code is that of the first pod that failed. Raises AgentError."""
    return submit(args, read_spec(args, "torchrun", per_node=args.nproc_per_node))

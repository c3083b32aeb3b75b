"""`a4-agent mpirun`: a program of one's own as MPI ranks on the pods of the plan."""

from __future__ import annotations

import argparse

from agent.commands import Parser
from agent.commands.following import submit
from agent.commands.options import add_following, add_run, count, read_spec, take_command

DESCRIPTION = """\
Runs COMMAND as MPI ranks on all pods: in the order of the plan, with each pod's environment, over the
cluster's own SSH. What it prints is shown here as it comes; the exit code is that of the ranks.
"""
EPILOG = """\
examples:
  a4-agent mpirun -- ./all_reduce_perf -b 8 -e 8G -f 2 -g 1
  a4-agent mpirun -np 4 -N 1 -- hostname
"""


def add_options(parser: Parser) -> None:
    take_command(parser, "COMMAND", EPILOG, example="./program argument")
    parser.add_argument("-np", "-n", "--np", type=count, default=0, metavar="N", help="ranks (default: every slot)")
    parser.add_argument(
        "-N", "--per-node", type=count, default=0, metavar="N", help="ranks per pod (default: its GPUs)"
    )
    add_run(parser)
    add_following(parser)


def run(args: argparse.Namespace) -> int:
    """The exit code is that of the ranks. Raises AgentError."""
    return submit(args, read_spec(args, "mpirun", ranks=args.np, per_node=args.per_node))

"""`a4-agent torchrun`: your own program under torchrun on the pods of the plan."""

from __future__ import annotations

import argparse

from agent.commands import Parser
from agent.commands.following import submit
from agent.commands.options import add_launched_run, count, read_spec, take_command

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


INSTEAD = {
    ("--nnodes",): "a4-agent sets it; --nodes N takes the first N pods",
    ("--node-rank", "--node_rank"): "a4-agent sets it on each pod",
    ("--master-addr", "--master_addr"): "a4-agent sets it: the first pod",
    ("--master-port", "--master_port"): "set MASTER_PORT in the shell",
    ("-m", "--module"): "it goes after --, as all that torchrun is to start: -- -m MODULE",
}
"""Options of torchrun that the agent sets itself, or takes elsewhere."""


def add_options(parser: Parser) -> None:
    take_command(parser, "PROGRAM", EPILOG, example="train.py")
    add, per_node = parser.add_argument, ("--nproc-per-node", "--nproc_per_node")
    add(*per_node, type=count, default=0, metavar="N", help="processes per pod (default: its GPUs)")
    add_launched_run(parser, INSTEAD)


def run(args: argparse.Namespace) -> int:
    """The exit code is that of the first pod that failed. Raises AgentError."""
    return submit(args, read_spec(args, "torchrun")._replace(per_node=args.nproc_per_node))

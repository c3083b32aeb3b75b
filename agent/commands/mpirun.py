"""`a4-agent mpirun`: your own program as MPI ranks on the pods of the plan."""

from __future__ import annotations

import argparse
import os
from typing import Any

from agent.commands import Parser
from agent.commands.following import submit
from agent.commands.options import add_launched_run, count, read_spec, take_command
from agent.decide.mpi_environment import is_denied
from agent.decide.runspec import MpirunOptions

DESCRIPTION = """\
Runs COMMAND as MPI ranks on all pods: in the order of the plan, with each pod's environment, over the
cluster's own SSH. What it prints is shown here as it comes; the exit code is that of the ranks.
"""
EPILOG = """\
examples:
  a4-agent mpirun -- ./all_reduce_perf -b 8 -e 8G -f 2 -g 1
  a4-agent mpirun -np 4 -N 1 -- hostname
"""


INSTEAD = {
    ("-H", "--host", "-host"): "name pods with --hosts LIST, such as 0,2-5",
    ("--hostfile", "-hostfile", "--machinefile", "-machinefile"): "it is a4-agent's; name pods with --hosts LIST",
    ("--rankfile", "-rankfile", "-rf"): "ranks are in the order of the plan: a4-agent topology",
    ("--wdir", "-wdir", "-wd"): "ranks start in the shell's directory: cd there before",
}
"""Options of mpirun that the agent sets itself."""


def add_options(parser: Parser) -> None:
    take_command(parser, "COMMAND", EPILOG, example="./program argument")
    add = parser.add_argument
    add("-np", "-n", "--np", type=count, default=0, metavar="N", help="ranks (default: every slot)")
    per_node = ("-N", "--per-node", "-npernode", "--npernode")
    add(*per_node, type=count, default=0, metavar="N", help="ranks per pod (default: its GPUs)")
    add = parser.add_argument_group("mpirun's own options").add_argument
    add("--bind-to", "-bind-to", default="", metavar="WHAT", help="what to bind each rank to (default: none)")
    add(
        "--map-by",
        "-map-by",
        default="",
        metavar="WHAT",
        help="where in a pod ranks are placed: core, numa, slot:PE=4 and the like",
    )
    several: dict[str, Any] = {"action": "append", "default": []}
    add("--mca", "-mca", nargs=2, metavar=("NAME", "VALUE"), help="set a parameter of MPI", **several)
    add(
        "-x",
        type=variable,
        metavar="NAME[=VALUE]",
        help="pass a variable to the ranks; exported ones are passed anyway",
        **several,
    )
    add("--oversubscribe", "-oversubscribe", action="store_true", help="allow -N more ranks than a pod has slots")
    add("--allow-run-as-root", action="store_true", help=argparse.SUPPRESS)
    add_launched_run(parser, INSTEAD, "mpirun's tag of its rank", "--tag-output", "-tag-output")


def variable(text: str) -> tuple[str, str]:
    """A variable and its value, by default the shell's."""
    name, given, value = text.partition("=")
    if not given and name not in os.environ:
        raise argparse.ArgumentTypeError(f"{name} is not set in this shell")
    if is_denied(name):
        raise argparse.ArgumentTypeError(f"ranks do not get {name} from a shell: the pod or mpirun sets it")
    return name, value if given else os.environ[name]


def run(args: argparse.Namespace) -> int:
    """The exit code is that of the ranks. Raises AgentError."""
    mca = tuple((name, value) for name, value in args.mca)
    own = MpirunOptions(args.bind_to, args.map_by, mca, tag=args.label, oversubscribe=args.oversubscribe)
    args.label = False
    mpi = None if own == MpirunOptions() else own
    spec = read_spec(args, "mpirun")
    return submit(args, spec._replace(ranks=args.np, per_node=args.per_node, env=dict(args.x), mpi=mpi))

"""`a4-agent torchrun`: your own program under torchrun on the pods of the plan."""

from __future__ import annotations

import argparse
from typing import Any

from agent.commands import Parser
from agent.commands.following import submit
from agent.commands.options import add_launched_run, count, read_spec, take_command
from agent.decide.torchrun import FLAGS, KINDS, WITH_VALUE

DESCRIPTION = """\
Runs PROGRAM under torchrun on all pods: static rendezvous, node ranks and MASTER_ADDR from the plan, one
process per GPU. PROGRAM is what torchrun takes: a script, or -m and a module. What all pods print is shown
here line by line; the first pod that fails ends the others, and its exit code is ours.
"""
EPILOG = """\
examples:
  a4-agent torchrun -- train.py --batch-size 8
  a4-agent torchrun --nodes 2 --nproc-per-node 4 --label -- -m package.train
  a4-agent torchrun --no-python ./with-numactl.sh train.py
"""
TOLD = {
    "-m": "PROGRAM is a module",
    "--no-python": "start PROGRAM itself, without Python",
}
"""Those of torchrun's own options that the help tells. The others are taken as well."""
OURS = ("--nproc-per-node",)


class PassedOn(argparse.Action):
    """An option that torchrun itself gets, in the order in which they are typed."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        given = [] if self.nargs == 0 else [values]
        namespace.options = [*namespace.options, option_string, *given]


def add_options(parser: Parser) -> None:
    take_command(parser, "PROGRAM", EPILOG, example="train.py")
    add, per_node = parser.add_argument, ("--nproc-per-node", "--nproc_per_node")
    add(*per_node, type=processes, default=0, metavar="N", help="processes per pod (default: its GPUs)")
    parser.set_defaults(options=[])
    group = parser.add_argument_group("torchrun's own options")
    for name in (*FLAGS, *KINDS, *WITH_VALUE):
        if name not in OURS:
            names = dict.fromkeys((name, name[:2] + name[2:].replace("-", "_")))
            values, text = None if name in WITH_VALUE else 0, TOLD.get(name, argparse.SUPPRESS)
            group.add_argument(*names, dest="options", action=PassedOn, nargs=values, help=text)
    add_launched_run(parser, {})


def processes(text: str) -> int:
    """0: as many as the pod has GPUs, which torchrun calls `gpu` or `auto`."""
    return 0 if text in ("gpu", "auto") else count(text)


def run(args: argparse.Namespace) -> int:
    """The exit code is that of the first pod that failed. Raises AgentError."""
    spec = read_spec(args, "torchrun")
    return submit(args, spec._replace(args=(*args.options, *spec.args), per_node=args.nproc_per_node))

"""`a4-agent hostfile`: the hostfile of this job, for any tool that wants one."""

from __future__ import annotations

import argparse
import os
import sys

from agent.commands.options import add_subset, checked
from agent.commands.pod import guessed_plan
from agent.commands.printing import json_text, write_file
from agent.decide.plan import hostfile
from agent.decide.setting_values import whole
from agent.decide.subset import subset
from agent.environment import look, read_plan
from agent.settings import read_settings

DESCRIPTION = "Prints the Open MPI hostfile of this job."
EXAMPLES = """\
a4-agent hostfile --slots 1 -o hosts
a4-agent hostfile --hosts 0,2-5
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--slots", type=checked(whole(1, 1024)), metavar="N", help="ranks per pod (default: GPUs per pod)"
    )
    parser.add_argument(
        "--order",
        choices=("topology", "index"),
        default="topology",
        help="as planned (default), or by pod index, which needs no plan",
    )
    add_subset(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write to FILE, or - for stdout (default)")
    parser.add_argument("--json", action="store_true", help="a list of {name, slots}")


def run(args: argparse.Namespace) -> int:
    # By index: for tools that want all pods before there is a plan.
    every = read_plan() if args.order == "topology" else guessed_plan(read_settings(os.environ, look(os.environ)[0])[0])
    plan = subset(every, nodes=args.nodes, hosts=args.hosts, exclude=args.exclude, lost={})
    names, slots = [peer.name for peer in plan.peers], args.slots or plan.slots
    text = json_text([{"name": name, "slots": slots} for name in names]) if args.json else hostfile(names, slots)
    if args.output not in (None, "-"):
        write_file(args.output, text)
    else:
        sys.stdout.write(text)
    return 0

"""`a4-agent topology`: the order of the pods and why it is so."""

from __future__ import annotations

import argparse
import sys

from agent.commands.printing import fitted_table, print_json
from agent.decide.location import levels, short_part
from agent.decide.plan import Plan
from agent.environment import read_plan

DESCRIPTION = "Shows the node and the place of each pod, in rank order; on a terminal, hashes are shortened."
EXAMPLES = "a4-agent topology"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the plan as JSON")


def run(args: argparse.Namespace) -> int:
    plan = read_plan()
    if args.json:
        print_json(plan.to_json())
    else:
        sys.stdout.write(describe(plan, short=sys.stdout.isatty()))
    return 0


def describe(plan: Plan, *, short: bool) -> str:
    """The table and, below it, where the places came from. `short`: of hashes the first eight digits."""
    depth = max((len(peer.place) for peer in plan.peers), default=0)
    header = ["rank", "pod", "name", "node", *levels(depth)]
    shown = short_part if short else str
    rows = [
        [
            *(str(rank), str(peer.index), peer.short_name, peer.known_node or "-"),
            *map(shown, peer.place),
            *["-"] * (depth - len(peer.place)),
        ]
        for rank, peer in enumerate(plan.peers)
    ]
    source = f"places from {plan.source}" if plan.source else "no places known: ranks follow the pod index"
    notes = "".join(f"note: {warning}\n" for warning in plan.warnings)
    return f"{fitted_table(header, rows, right=(0, 1))}\n{source}\n{notes}"

"""`a4-agent peers`: the pods of this job, or why some are missing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from agent.commands.pod import read_state
from agent.commands.printing import fitted_table, print_json
from agent.decide.location import location_text, short_part
from agent.decide.plan import Plan
from agent.environment import find_plan, read_plan
from agent.paths import RunDir

DESCRIPTION = (
    "Lists the pods of this job in rank order. On a terminal, each has the name that kubectl takes, and places are "
    "shortened; otherwise DNS names, kubectl's and nodes are shown whole."
)
EXAMPLES = """\
a4-agent peers
a4-agent peers --json
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the plan or, while there is none, who is missing. Raises AgentError when nothing is known."""
    directory = RunDir()
    plan = find_plan(directory)
    state = read_state(directory)
    if plan is not None or state is None or not state.missing:
        _print(plan or read_plan(), state.lost_why() if state else {}, args.json)
    elif args.json:
        print_json({"missing": state.missing})
    else:
        rows = [[str(index), why] for index, why in state.missing.items()]
        sys.stdout.write("the cluster is not formed yet; missing:\n" + fitted_table(["pod", "why"], rows, right=(0,)))
    return 0


def _print(plan: Plan, lost: Mapping[int, str], as_json: bool) -> None:
    """The plan, and why pods of it have gone since."""
    if as_json:
        print_json([{**peer, "lost": lost.get(peer["index"], "")} for peer in plan.to_json()["peers"]])
        return
    header, rows = (_on_terminal if sys.stdout.isatty() else _whole)(plan)
    sys.stdout.write(fitted_table(header, rows, right=(0, 1)))
    for peer in plan.peers:
        if peer.index in lost:
            sys.stdout.write(f"lost: {peer.where}: {lost[peer.index]}\n")


def _on_terminal(plan: Plan) -> tuple[list[str], list[list[str]]]:
    """The name that kubectl takes begins with that of the others."""
    rows = [
        [
            str(rank),
            str(peer.index),
            peer.short_name,
            peer.address,
            location_text(tuple(map(short_part, peer.place))),
        ]
        for rank, peer in enumerate(plan.peers)
    ]
    return ["rank", "pod", "name", "address", "place"], rows


def _whole(plan: Plan) -> tuple[list[str], list[list[str]]]:
    rows = [
        [
            str(rank),
            str(peer.index),
            peer.name,
            peer.address,
            location_text(peer.place),
            peer.pod_name or "-",
            peer.known_node or "-",
        ]
        for rank, peer in enumerate(plan.peers)
    ]
    return ["rank", "pod", "name", "address", "place", "kubectl's name", "node"], rows

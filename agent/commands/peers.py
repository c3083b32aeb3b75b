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

DESCRIPTION = "Lists the pods of this job in rank order; on a terminal, names and places are shortened."


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
    terminal = sys.stdout.isatty()
    rows = [
        [
            str(rank),
            str(peer.index),
            peer.name.partition(".")[0] if terminal else peer.name,
            peer.address,
            location_text(tuple(map(short_part, peer.place)) if terminal else peer.place),
        ]
        for rank, peer in enumerate(plan.peers)
    ]
    sys.stdout.write(fitted_table(["rank", "pod", "name", "address", "place"], rows, right=(0, 1)))
    for peer in plan.peers:
        if peer.index in lost:
            sys.stdout.write(f"lost: {peer.where}: {lost[peer.index]}\n")

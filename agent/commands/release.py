"""`a4-agent release`: the cluster has slept long enough."""

from __future__ import annotations

import argparse
import sys

from agent.client import Client
from agent.commands.options import add_json
from agent.commands.pod import run_dir


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "release", description="Ends a sleeping cluster: every pod ends with the job's recorded exit code."
    )
    parser.add_argument("--force", action="store_true", help="even while a run goes on, which ends it")
    add_json(parser, "the code as JSON")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    with Client(run_dir().path) as client:
        code = client.release(force=args.force)
    if args.json:
        from agent.commands.answers import VERSION, ReleaseAnswer, write

        write(ReleaseAnswer(VERSION, code))
        return 0
    sys.stdout.write(f"the cluster is released: every pod ends with the job's exit code {code}\n")
    return 0

"""`a4-agent release`: the cluster has slept long enough."""

from __future__ import annotations

import argparse
import sys

from agent.client import Client
from agent.commands.answers import VERSION, ReleaseAnswer, write

DESCRIPTION = "Ends a sleeping cluster: every pod ends with the job's recorded exit code."
EXAMPLES = """\
a4-agent release
a4-agent release --force
"""

_CONNECTED: list[Client] = []
"""Closed only when Python ends, after all is printed: the end of this pod waits for that."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="also end a run in progress")
    parser.add_argument("--json", action="store_true", help="the code as JSON")


def run(args: argparse.Namespace) -> int:
    client = Client()
    _CONNECTED.append(client)
    code = client.release(force=args.force)
    if args.json:
        write(ReleaseAnswer(VERSION, code))
    else:
        sys.stdout.write(f"the cluster is released: every pod ends with the job's exit code {code}\n")
    return 0

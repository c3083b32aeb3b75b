"""`a4-agent cancel`: end a run that nobody follows any more."""

from __future__ import annotations

import argparse
import socket

from agent.client import Client
from agent.commands.answers import run_answer, write
from agent.commands.following import reasons
from agent.commands.options import add_which_run
from agent.decide.words import count_text
from agent.output import say

DESCRIPTION = (
    "Ends RUN on every pod, by default the run that occupies the cluster, as Ctrl-C would where it was started; "
    "returns when all its processes are gone."
)
EXAMPLES = """\
a4-agent cancel
a4-agent cancel --hurry night-1
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_which_run(parser)
    parser.add_argument("--hurry", action="store_true", help="send SIGKILL at once, without time for a clean exit")
    parser.add_argument("--json", action="store_true", help="the run's end as JSON")


def run(args: argparse.Namespace) -> int:
    """0 when nothing of the run is left, however it ended: that was asked for. Raises AgentError."""
    with Client() as client:
        found = client.find(args.run)
        if found.over:
            say(f"{found.title} is over already")
            if args.json:
                write(run_answer(found, client.wait(found.id)))
            return 0
        asked = f"a4-agent cancel on {socket.gethostname()}"
        client.cancel(found.id, hurry=args.hurry, why=asked)
        say(f"ending {found.title} on {count_text(len(found.pods), 'pod')}")
        ended = client.wait(found.id)
    # What was seen before its end: of a run that was silent, who held it up.
    seen = [line for line in reasons(ended.end.why) if line != asked]
    say("\n  ".join([f"{found.title} ended with exit code {ended.end.code}: {ended.end.what}", *seen]))
    if args.json:
        write(run_answer(found, ended))
    return 0

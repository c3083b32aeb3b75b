"""`a4-agent find-slow`: `a4-agent run find-slow` by another name."""

from __future__ import annotations

from agent.commands import Parser
from agent.commands.options import add_followed_run, workload_parser
from agent.commands.run import run as run

NAME = "find-slow"
DESCRIPTION = """\
Measures each GPU alone, all pairs of pods and all pods at once, and names those that are slow or hang: 65 if
there are any. It is a4-agent run find-slow by another name; see docs/find-slow.md.
"""
BELOW = """

examples:
  a4-agent find-slow --hosts 0-7
  a4-agent find-slow -- --seconds 5 --over tcp
"""


def add_options(parser: Parser) -> None:
    parser.usage = f"{parser.prog} [-h] [options] [-- ARGUMENT ...]"
    parser.takes_rest = "arguments go after `--`: {} -- --seconds 5"
    parser.epilog = "".join(workload_parser(NAME).format_help().partition("arguments, after --")[1:])
    parser.epilog += BELOW
    parser.set_defaults(workload=NAME, order=None)
    add_followed_run(parser)

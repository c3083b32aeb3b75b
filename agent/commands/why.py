"""`a4-agent why`: why a run stands still, in one sentence."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence

from agent.client import Client
from agent.commands.answers import VERSION, WhyAnswer, write
from agent.commands.options import add_which_run
from agent.decide.diagnosis import RunDiagnosis

DESCRIPTION = (
    "Looks at the processes of RUN on all pods, by default of the run that occupies the cluster, and says "
    "which rank holds up the others and where it is. Ends nothing. For a run that is over, shows what was found before "
    "its end."
)
EXAMPLES = """\
a4-agent why
a4-agent why --json night-1
"""
COLUMNS = 80
INDENT = "  "
TITLES = {
    "hangs": "hangs",
    "circle": "hangs, and no single rank is to blame",
    "waits": "waits, and may continue",
    "moves": "is making progress",
    "unclear": "may or may not hang",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_which_run(parser)
    parser.add_argument("--json", action="store_true", help="the same as JSON")


def run(args: argparse.Namespace) -> int:
    """0 when it could answer, whether the run hangs or not. Raises AgentError: 66 no such run, 69 no cluster."""
    with Client() as client:
        answer = client.why(args.run or None)
    if args.json:
        write(WhyAnswer(VERSION, *answer))
    else:
        columns = min(COLUMNS, shutil.get_terminal_size((COLUMNS, 24)).columns)
        sys.stdout.writelines(f"{line}\n" for line in lines(answer, columns))
    return 0


def lines(answer: RunDiagnosis, columns: int = COLUMNS) -> Iterator[str]:
    """The answer for people."""
    found = answer.diagnosis
    if found is None:
        yield f"{answer.run} is over, and nothing was seen to hang in it"
        return
    yield f"{answer.run} {'was looked at before its end' if answer.over else TITLES[found.status]}"
    yield from _wrapped(f"{found.sentence}.", columns)
    for detail in found.details:
        yield from _wrapped(detail, columns, "- ")
    if found.sources:
        yield ""
        rows = [(INDENT + one.name, one.state, one.text) for one in found.sources]
        yield from _sources(rows, columns)


def _wrapped(text: str, columns: int, mark: str = "") -> list[str]:
    indent = INDENT + " " * len(mark)
    return textwrap.wrap(text, columns, initial_indent=INDENT + mark, subsequent_indent=indent, break_on_hyphens=False)


def _sources(rows: Sequence[tuple[str, str, str]], columns: int) -> Iterator[str]:
    """Name and state in columns of their own; what it says in lines beside them."""
    widths = [max(len(row[at]) for row in rows) for at in (0, 1)]
    room = max(20, columns - sum(widths) - 4)
    for name, state, text in rows:
        first, *more = textwrap.wrap(text, room, break_on_hyphens=False) or [""]
        head = f"{name:<{widths[0]}}  {state:<{widths[1]}}  "
        yield f"{head}{first}".rstrip()
        yield from (" " * len(head) + line for line in more)

"""`a4-agent settings`: every setting, its value and where it came from."""

from __future__ import annotations

import argparse
import os
import re
import sys
import textwrap

from agent.commands.pod import agent_start, unheard_settings
from agent.commands.printing import fitted_table, print_json, terminal_columns
from agent.decide.masking import Masker
from agent.decide.secret_variables import listed, secret_values
from agent.decide.tables import render
from agent.decide.words import did_you_mean
from agent.environment import look
from agent.errors import Exit, UsageError
from agent.paths import RunDir
from agent.settings import Examination, Value, examine

DESCRIPTION = (
    "Shows every setting of this pod as its agent sees it or, if no agent runs, as one would see it. "
    "Exits with 78 if any of those shown is wrong or missing."
)
EXAMPLES = """\
a4-agent settings
a4-agent settings lease_seconds
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    text = "only these, such as A4_LEASE_SECONDS or lease_seconds"
    parser.add_argument("names", nargs="*", metavar="NAME", help=text)
    parser.add_argument("--json", action="store_true", help="the same as JSON")


def run(args: argparse.Namespace) -> int:
    """78 when a setting is wrong or missing, as the agent itself would end."""
    agent = agent_start(RunDir())
    environ = agent or os.environ
    found, _ = look(environ)
    seen = examine(environ, found)
    if args.names:
        seen = _of_these(tuple(_named(name, seen) for name in args.names), seen)
    masker = Masker(secret_values(environ, listed(environ)))
    if args.json:
        values = [value._asdict() for value in seen.values]
        print_json(masker.value({"settings": values, "problems": seen.problems, "warnings": seen.warnings}))
    else:
        rows = [[value.name, _shown(value, masker), value.source, value.meaning] for value in seen.values]
        sys.stdout.write(_table(rows, terminal_columns(), few=bool(args.names)))
    for problem in seen.problems:
        print(f"a4-agent: {masker.text(problem)}", file=sys.stderr)
    for warning in [*seen.warnings, *unheard_settings(agent)]:
        print(f"a4-agent: warning: {warning}", file=sys.stderr)
    return int(Exit.SETTINGS) if seen.problems else 0


def _table(rows: list[list[str]], columns: int, *, few: bool) -> str:
    """The meanings stand below the table where the terminal is too narrow; of many settings they are left out."""
    whole = render(["setting", "value", "source", "meaning"], rows)
    if not columns or max(map(len, whole.splitlines())) <= columns:
        return whole
    meanings = [f"{name}: {meaning}" for name, _, _, meaning in rows] if few else ["a4-agent settings NAME says more"]
    below = "".join(f"{textwrap.fill(text, columns)}\n" for text in meanings)
    return fitted_table(["setting", "value", "source"], [row[:3] for row in rows]) + below


def _named(name: str, seen: Examination) -> Value:
    """The setting of that name. Raises UsageError when there is none."""
    by_name = {value.name: value for value in seen.values}
    full = name.upper()
    wanted = full if full in by_name else f"A4_{full}"
    if wanted not in by_name:
        raise UsageError(f"there is no setting {name!r}{did_you_mean(wanted, by_name)}", "a4-agent settings lists them")
    return by_name[wanted]


def _of_these(values: tuple[Value, ...], seen: Examination) -> Examination:
    """What was seen of these settings alone."""

    def about(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(text for text in texts if any(re.search(rf"\b{value.name}\b", text) for value in values))

    return seen._replace(values=values, problems=about(seen.problems), warnings=about(seen.warnings))


def _shown(value: Value, masker: Masker) -> str:
    """A value in a cell of the table."""
    if value.value is None:
        return "(missing)"
    if isinstance(value.value, bool):
        return str(value.value).lower()
    text = f"{value.value:g}" if isinstance(value.value, float) else masker.text(str(value.value))
    return text or "(empty)"

"""The manual page a4-agent(1), made of the parsers of all verbs, the options of workloads and the table of settings.

python -m scripts.man_page >a4-agent.1
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator

from agent import __version__
from agent.catalogue import RUNNABLE
from agent.commands import VERBS, Parser, build_parser
from agent.commands.options import workload_parser
from agent.errors import Exit
from agent.settings import SETTINGS

NAME = "brings the pods of a GPU JobSet together and runs workloads on all of them"


def page() -> str:
    """The page in man(7)'s language."""
    lines = [
        f'.TH A4-AGENT 1 "" "a4-agent {__version__}" "User Commands"',
        *(".SH NAME", f"a4-agent \\- {NAME}"),
        *(".SH SYNOPSIS", ".B a4-agent", "[OPTION ...] VERB [OPTION ...]"),
        *(".SH OPTIONS", *_options(build_parser())),
        *(".SH VERBS", *_verbs(build_parser(*VERBS))),
        *(".SH WORKLOADS", "The arguments of each follow `--`: a4-agent run WORKLOAD -- ARGUMENT ..."),
        *(line for name in RUNNABLE for line in _section(name, workload_parser(name))),
        *(".SH ENVIRONMENT", *(line for one in SETTINGS for line in _item(one.name, one.help))),
        *(".SH EXIT STATUS", *(line for code in Exit for line in _item(str(int(code)), _words(code.name)))),
    ]
    return "\n".join(lines) + "\n"


def _verbs(parser: Parser, before: str = "") -> Iterator[str]:
    for name, inner in parser.verbs.items():
        yield from _section(f"{before}{name}", inner, VERBS.get(name, ""))
        yield from _verbs(inner, f"{before}{name} ")


def _section(name: str, parser: Parser, text: str = "") -> Iterator[str]:
    yield f'.SS "{name}"'
    listed = False
    for line in (parser.description or text).splitlines():
        if line.startswith("  ") or listed:
            yield ".br"
        listed = line.startswith("  ")
        yield _text(re.sub(r"(?<=\S) {2,}", ": ", line)) or ".br"
    yield from _options(parser)


def _options(parser: Parser) -> Iterator[str]:
    """Options and arguments that help shows."""
    for action in parser.actions:
        if action.help is argparse.SUPPRESS or "--help" in action.option_strings:
            continue
        value = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
        if action.choices:
            value = "|".join(map(str, action.choices))
        yield from _item(" ".join(filter(None, (", ".join(action.option_strings), str(value)))), action.help or "")


def _item(name: str, text: str) -> Iterator[str]:
    yield ".TP"
    yield f".B {_text(name)}"
    yield _text(text.replace("%%", "%")) or "\\&"


def _words(name: str) -> str:
    return name.lower().replace("_", " ")


def _text(text: str) -> str:
    """As one line of text: no word of it is a command of roff."""
    escaped = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", escaped)


if __name__ == "__main__":
    sys.stdout.write(page())

"""`a4-agent status`: what this pod is doing, and with whom. Reads files only, so it always answers."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time

from agent.commands.options import add_seconds
from agent.commands.pod import read_state
from agent.commands.printing import terminal_columns
from agent.commands.state_text import describe
from agent.decide.setting_values import seconds
from agent.decide.words import at_most
from agent.environment import find_plan, load
from agent.errors import Exit
from agent.paths import RunDir

DESCRIPTION = (
    "Shows what the agent of this pod is doing: phase, runs, pods, the job's end. "
    "Exits with 69 if no agent has been started in this pod."
)
EXAMPLES = """\
a4-agent status
a4-agent status --watch 5
"""
CLEAR = "\x1b[H\x1b[J"
"""From the upper left corner on: unlike a whole clear it does not flicker."""


def add_options(parser: argparse.ArgumentParser) -> None:
    text = "refresh it, every second by default, until Ctrl-C"
    add_seconds(parser, "--watch", seconds("2", 0.01), text, "-w", nargs="?", const=1.0)
    parser.add_argument("--json", action="store_true", help="the same as JSON; with --watch one line each time")


def run(args: argparse.Namespace) -> int:
    directory = RunDir()
    if args.watch is None:
        sys.stdout.write(_shown(directory, as_json=args.json, indent=1, columns=terminal_columns()))
        return 0 if load(directory.state) else int(Exit.PEERS_MISSING)
    return _watch(directory, args.watch, as_json=args.json)


def _shown(directory: RunDir, *, as_json: bool, indent: int | None, columns: int = 0, lines: int = 0) -> str:
    plan, alive = find_plan(directory), _alive_seconds(directory)
    if as_json:
        data = {"state": load(directory.state), "alive_seconds_ago": alive, "plan": plan.to_json() if plan else None}
        return json.dumps(data, indent=indent) + "\n"
    state = read_state(directory)
    if state is None:
        where = f"no a4-agent has been started in this pod ({directory.path} holds no state)"
        return f"{where}; the pods of a local cluster: a4-agent local status\n"
    return describe(state, plan, alive, time.time(), columns=columns, lines=lines)


def _watch(directory: RunDir, every: float, *, as_json: bool) -> int:
    terminal = sys.stdout.isatty()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # it ends what is shown, and never amid that
    over = False
    while not over:
        size = shutil.get_terminal_size() if terminal else os.terminal_size((0, 0))
        text = _shown(directory, as_json=as_json, indent=None, columns=size.columns, lines=size.lines)
        sys.stdout.write(CLEAR + _fitted(text, size) if terminal else text)
        sys.stdout.flush()
        over = signal.sigtimedwait({signal.SIGINT}, every) is not None
    if terminal:
        sys.stdout.write("\n")
    return 0


def _fitted(text: str, size: os.terminal_size) -> str:
    """As much as the terminal has room for. The last line has no end, which would move up the first."""
    lines = text.splitlines()
    if len(lines) > size.lines > 1:
        lines = at_most(lines, size.lines - 1, "… {} more lines: a4-agent status")
    return "\n".join(line[: size.columns] for line in lines[: size.lines])


def _alive_seconds(directory: RunDir) -> float | None:
    try:
        return max(0.0, time.time() - os.stat(directory.alive).st_mtime)
    except OSError:
        return None

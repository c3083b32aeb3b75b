"""Programs that are asked one thing, and given up when they do not answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from agent.cutting import cut_at_word
from agent.paths import shipped

MOST_REASON = 300
KILLED_SECONDS = 1.0


@dataclass(frozen=True)
class Answer:
    """What a program wrote on stdout, all of it or until it was given up, and why that may not be all."""

    output: str
    problem: str = ""


def ask(what: str, argv: Sequence[str], environ: Mapping[str, str], seconds: float) -> Answer:
    """Start a program and hear it; `what` is its name in a problem. Never raises for what the program does."""
    try:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environ),
            cwd="/",
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return Answer("", f"{argv[0]} cannot be started: {getattr(error, 'strerror', None) or error}")
    try:
        output, errors = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as late:
        give_up(child)
        return Answer(_text(late.output or b""), f"{what} did not answer within {seconds:g} s")
    return Answer(_text(output), _problem(what, child.returncode, _text(errors)))


def ask_own(what: str, name: str, arguments: Sequence[str], environ: Mapping[str, str], seconds: float) -> Answer:
    """The same with a program of entrypoints/, under the agent's own Python and in the environment given."""
    return ask(what, [sys.executable, "-I", "-S", shipped("entrypoints", name), *arguments], environ, seconds)


def give_up(child: subprocess.Popen[bytes], seconds: float = KILLED_SECONDS) -> None:
    """Kill a program with its session. Its end is not waited for longer than a moment: in a system call that hangs it
    does not even take SIGKILL."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
    with suppress(subprocess.TimeoutExpired):
        child.wait(seconds)


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _problem(what: str, status: int, errors: str) -> str:
    if not status:
        return ""
    how = f"{what} ended with {status}" if status > 0 else f"{what} was killed by signal {-status}"
    last = next((line for line in reversed(errors.splitlines()) if line.strip()), "")
    return f"{how}: {cut_at_word(last.strip(), MOST_REASON)}" if last else how

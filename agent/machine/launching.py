"""One process, started and waited for: for scripts, which have nothing else to do meanwhile."""

from __future__ import annotations

import sys
from typing import NamedTuple

from agent.errors import MissingProgram
from agent.launch import Launch
from agent.machine.piped import Piped
from agent.output import write_all

KEPT_BYTES = 65536
"""At the end of what it printed, for whoever judges it."""


class LaunchEnd(NamedTuple):
    """How a process ended: its exit status, -n when signal n killed it, and the end of what it printed."""

    status: int
    output: str


def run_launch(launch: Launch) -> LaunchEnd:
    """Start a process, pass on to our stdout and stderr what it prints, and wait for its end.

    It has no stdin and a session of its own: what interrupts the wait, as Ctrl-C does, ends it with its group (SIGTERM;
    when it has ended, and after 10 s at most, SIGKILL) and is raised again. Nothing is masked, and nothing else that it
    leaves behind is looked for: for runs that are submitted to it the agent does both.
    Raises MissingProgram when it cannot be started, BrokenPipeError when nobody reads what it prints.
    """
    sys.stdout.flush()  # what was printed before stands before
    kept = b""

    def output(stream: int, data: bytes) -> None:
        nonlocal kept
        write_all(stream, data)
        kept = (kept + data)[-KEPT_BYTES:]

    try:
        process = Piped(launch, output)
    except OSError as error:
        raise MissingProgram(f"{launch.argv[0]} cannot be started in {launch.cwd}: {error.strerror}") from error
    return LaunchEnd(process.wait(), kept.decode(errors="replace"))

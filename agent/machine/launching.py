"""One process, started and waited for: for scripts, which have nothing else to do meanwhile."""

from __future__ import annotations

import os
import select
import selectors
import signal
import subprocess
import sys
from typing import NamedTuple

from agent.errors import MissingProgram
from agent.launch import Launch
from agent.output import STDERR, STDOUT, write_all

READ_BYTES = 65536
KEPT_BYTES = 65536
"""At the end of what it printed, for whoever judges it."""
LAST_OUTPUT_SECONDS = 0.5
"""How long processes that hold the pipes of one that has ended may stay silent before they are given up."""
TERM_SECONDS = 10.0
"""How long an interrupted process has after SIGTERM."""


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
    try:
        process = subprocess.Popen(
            list(launch.argv),
            env=dict(launch.env),
            cwd=launch.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise MissingProgram(f"{launch.argv[0]} cannot be started in {launch.cwd}: {error.strerror}") from error
    with process:
        try:
            printed = _pass_on(process)
            return LaunchEnd(process.wait(), printed.decode(errors="replace"))
        except BaseException:
            _end(process)
            raise


def _pass_on(process: subprocess.Popen[bytes]) -> bytes:
    """Until it has ended and its pipes are closed or silent; the end of all that came."""
    assert process.stdout is not None and process.stderr is not None
    targets = {process.stdout.fileno(): STDOUT, process.stderr.fileno(): STDERR}
    kept = b""
    end = os.pidfd_open(process.pid)
    try:
        with selectors.DefaultSelector() as selector:
            for fd in (*targets, end):
                selector.register(fd, selectors.EVENT_READ)
            while ready := selector.select(None if end in selector.get_map() else LAST_OUTPUT_SECONDS):
                for fd in [key.fd for key, _ in ready]:
                    if fd != end and (data := os.read(fd, READ_BYTES)):
                        write_all(targets[fd], data)
                        kept = (kept + data)[-KEPT_BYTES:]
                    else:
                        selector.unregister(fd)
                if not selector.get_map():
                    break
    finally:
        os.close(end)
    return kept


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and its whole group, which exists until the status is taken."""
    if process.returncode is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    end = os.pidfd_open(process.pid)
    try:
        select.select([end], [], [], TERM_SECONDS)
    finally:
        os.close(end)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

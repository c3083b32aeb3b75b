"""Telling the processes of a run that it is to end."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable

from agent.machine.api import RunMarks
from agent.machine.loop import Loop
from agent.machine.run_processes import (
    UNSURE_SECONDS,
    Marked,
    all_pids,
    find_aside,
    known,
    marked,
    send_signal,
    with_environ,
)

PAUSES = (0.05, 0.5)
"""Between two looks, at first and later."""


def tell(loop: Loop, marks: RunMarks, number: int, variable: str, seconds: float, over: Callable[[], None]) -> None:
    """Send a signal once to the processes of a run: to its ranks, which have `variable`; empty: to all.

    `over` is called when none of them is left, or after `seconds`. Any other signal than SIGTERM goes only to
    processes that handle it, for it would end the rest.
    """
    started = time.monotonic()
    there = set(all_pids())  # who begins later is not told: it may be what saves a rank's state
    told, hanging = set[int](), set[int]()

    def look() -> None:
        # Until they are over, and in threads: reading an environment may wait for the process.
        find_aside(loop, lambda: processes(marks, variable, hanging), judge)

    def judge(found: Marked) -> None:
        for pid in (found.pids & there) - told:
            told.add(pid)
            if number == signal.SIGTERM or handles(pid, number):
                send_signal(pid, number)
        age = time.monotonic() - started
        if age < seconds and (found.pids or (found.unsure and age < UNSURE_SECONDS)):
            loop.later(min(max(age / 10, PAUSES[0]), PAUSES[1], seconds - age), look)
        else:
            over()

    loop.post(look)


def processes(marks: RunMarks, variable: str, hanging: set[int]) -> Marked:
    """The processes of a run, all or only its ranks: those that have the variable, or no A4_RUN, which is in the
    environment of all launchers and which programs may overwrite. See `marked` for `hanging`; blocks as that does."""
    seen = Marked(known(marks)) if marks.group or marks.cgroup else marked(marks.run, hanging)
    if not variable:
        return seen
    mark = f"A4_RUN={marks.run}".encode()
    prefix = f"{variable}=".encode()
    ranks = with_environ(
        seen.pids, lambda words: mark not in words or any(word.startswith(prefix) for word in words), hanging
    )
    return Marked(ranks.pids | (hanging & seen.pids), seen.unsure or ranks.unsure)


def handles(pid: int, number: int) -> bool:
    """Has the process a handler for this signal, or has it blocked it, for a thread that waits for it?"""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            masks = re.findall(rb"^Sig(?:Blk|Cgt):\t([0-9a-f]+)$", file.read(), re.MULTILINE)
    except OSError:
        return False  # it has ended
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)

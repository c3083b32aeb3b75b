"""Kills the processes of a run on this pod when its agent cannot: python -Es -m agent.machine.guard DEADLINE RUN GROUP
CGROUP.

The fence passes at DEADLINE, on CLOCK_MONOTONIC; each line on stdin is a later one. Then, or when stdin ends, whatever
carries the marks RUN, GROUP and CGROUP is killed, again and again until nothing is left. This process has none of them,
and ends when its agent kills it, as it does when nothing of the run is left, or after stdin has ended.

It says on stdout `ready`, and `passed` before it kills.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress

from agent.machine.api import RunMarks
from agent.machine.run_processes import UNSURE_SECONDS, kill_cgroup, known, marked, send_signal

DEAF = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""What may be sent to all processes of a pod."""
PAUSES = (0.05, 1.0)
"""Between two looks, at first and later."""


def until_it_passes(deadline: float) -> bool:
    """Wait for the fence, or the end of stdin; whether that has ended."""
    poller = select.poll()
    poller.register(0, select.POLLIN)
    rest = b""
    while True:
        left = deadline - time.monotonic()
        ready = poller.poll(min(left, 3600.0) * 1000 if left > 0 else 0)
        # Before anything is read: what waits there has come too late for a guard that stood still.
        if time.monotonic() >= deadline:
            return False
        if not ready:
            continue
        data = os.read(0, 65536)
        if not data:
            return True
        *lines, rest = (rest + data).split(b"\n")
        deadline = max([deadline, *map(float, lines)])


def kill_all(marks: RunMarks, hanging: set[int], since: float) -> bool:
    """Kill what carries the marks now; False when nothing does."""
    if marks.cgroup:
        kill_cgroup(marks.cgroup)
    pids, unsure = known(marks), False
    if not pids:
        pids, unsure = marked(marks.run, hanging)
    for pid in pids:
        with suppress(PermissionError):
            send_signal(pid, signal.SIGKILL)
    kernel_knows = marks.group or marks.cgroup
    return bool(pids) or (unsure and not kernel_knows and time.monotonic() < since + UNSURE_SECONDS)


def kill_until_told(marks: RunMarks, has_ended: bool) -> None:
    """Until nothing is left and stdin has ended: while the agent lives it may be about to start another process."""
    since, hanging, pause = time.monotonic(), set[int](), PAUSES[0]
    poller = select.poll()
    if not has_ended:
        poller.register(0, select.POLLIN)
    while True:
        left = True
        with suppress(OSError, RuntimeError):  # no more files, or no more threads: try again
            left = kill_all(marks, hanging, since)
        if has_ended and not left:
            return
        if poller.poll(pause * 1000) and not os.read(0, 65536):
            has_ended = True
            poller.unregister(0)
        pause = min(2 * pause, PAUSES[1])


def say(word: str) -> None:
    with suppress(OSError):  # nobody hears it any more
        os.write(1, f"{word}\n".encode())


def main() -> None:
    for number in DEAF:
        signal.signal(number, signal.SIG_IGN)
    deadline, run, group, cgroup = sys.argv[1:]
    say("ready")
    has_ended = until_it_passes(float(deadline))
    say("passed")
    kill_until_told(RunMarks(run, int(group), cgroup), has_ended)


if __name__ == "__main__":
    main()

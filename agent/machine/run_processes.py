"""The processes of a run on this pod: which they are, how they are told of the end, and their end.

Those that `known` finds carry a mark of the kernel's, which every child inherits and no `setsid`, `env -i` or change of
title takes off. The variable A4_RUN in a process's environment is looked for last: reading it may wait for the process.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from agent.machine.api import RunMarks
from agent.machine.loop import Loop
from agent.machine.process import stat_of
from agent.machine.workers import in_time

TERM_SECONDS = 2.0
"""From SIGTERM to SIGKILL for what a run has left behind: its launcher had its time before."""
UNSURE_SECONDS = 2.0
"""How long a process that shows no environment may be in the middle of an exec."""
LOOK_AGAIN_SECONDS = 0.05
LOOKERS = 8
"""Threads, once one alone has not seen all in time: each takes the interpreter from the others."""
KERNEL_THREAD = 0x00200000
"""PF_KTHREAD of <linux/sched.h>."""
PAUSES = (0.05, 0.5)
"""Between two looks of `tell`, at first and later."""


def make_cgroup(path: str) -> bool:
    """Make a cgroup, or say that none can be made there."""
    try:
        os.mkdir(path)
    except FileExistsError:
        pass
    except OSError:
        return False
    if os.path.exists(f"{path}/cgroup.procs"):
        return True
    # What lies there is not the file system of cgroups.
    os.rmdir(path)
    return False


def remove_cgroup(path: str) -> bool:
    """Remove a cgroup and those in it as far as they are empty; True when it is gone."""
    # Not rmtree, because the files in a cgroup cannot be unlinked; they go with it.
    for directory, _, _ in os.walk(path, topdown=False):
        with suppress(OSError):
            os.rmdir(directory)
    return not os.path.exists(path)


def kill_cgroup(path: str) -> None:
    """At one blow, forks and all. Linux has this file from 5.14 on; before, processes are killed one by one."""
    with suppress(OSError), open(f"{path}/cgroup.kill", "r+") as file:
        file.write("1")


def known(marks: RunMarks) -> set[int]:
    """Processes with a mark of the kernel's. Asks the kernel alone: no process can hold this up."""
    return (_in_cgroup(marks.cgroup) if marks.cgroup else set()) | (_with_group(marks.group) if marks.group else set())


def _in_cgroup(path: str) -> set[int]:
    found: set[int] = set()
    for directory, _, _ in os.walk(path):
        with suppress(OSError), open(f"{directory}/cgroup.procs") as file:
            found.update(map(int, file.read().split()))
    return found - {0}  # processes that this PID namespace does not have


def _with_group(group: int) -> set[int]:
    found = set()
    for pid in all_pids():
        with suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:
            if has_group(file.read(), group):
                found.add(pid)
    return found


def has_group(status: bytes, group: int) -> bool:
    if b"%d" % group not in status:  # most have not: the rest takes as long as reading it
        return False
    fields = {name: value.split() for name, _, value in (line.partition(b":") for line in status.splitlines())}
    ended = fields[b"State"][0] in b"ZX" and fields.get(b"Threads") == [b"1"]
    return not ended and b"%d" % group in fields.get(b"Groups", ())


def send_signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


class Marked(NamedTuple):
    """The processes with the run's mark in their environment."""

    pids: set[int]
    unsure: bool = False
    """Some process could not be judged yet."""


def marked(run_id: str, hanging: set[int] | None = None, proc: str = "/proc") -> Marked:
    """Processes other than this one with A4_RUN=`run_id`. Blocks for 1.5 s at most."""
    mark = f"A4_RUN={run_id}".encode()
    pids = set(all_pids(proc)) - {os.getpid()}
    looks = ((1, 0.5), (LOOKERS, 1.0))
    return with_environ(pids, lambda words: mark in words, set() if hanging is None else hanging, looks, proc)


def with_environ(
    pids: Iterable[int],
    fits: Callable[[Sequence[bytes]], bool],
    hanging: set[int],
    looks: Sequence[tuple[int, float]] = ((LOOKERS, 0.5),),
    proc: str = "/proc",
) -> Marked:
    """Those of these processes whose environment `fits`. looks: how many look at a time, and for how long at most.

    Those that cannot be read in that time are added to `hanging`, and are not looked at if they are there already.
    """
    others = [pid for pid in pids if pid not in hanging]
    found, unsure, begun, over = set[int](), set[int](), set[int](), set[int]()

    def look(pid: int) -> None:
        begun.add(pid)
        with suppress(OSError):  # it has ended
            with open(f"{proc}/{pid}/environ", "rb") as file:
                environ = file.read()
            if environ and fits(environ.split(b"\0")):
                found.add(pid)
            elif not environ and runs_a_program(pid, proc):
                unsure.add(pid)  # in the middle of an exec: its environment shows in a moment
        over.add(pid)

    for most, seconds in looks:
        jobs = [partial(look, pid) for pid in others if pid not in begun]
        in_time(jobs, most, time.monotonic() + seconds)
    hanging |= begun - over
    return Marked(set(found), bool(unsure) or len(over) < len(others))


def all_pids(proc: str = "/proc") -> Iterator[int]:
    return (int(entry) for entry in os.listdir(proc) if entry.isdigit())


def runs_a_program(pid: int, proc: str = "/proc") -> bool:
    """Neither a zombie nor a kernel thread. Raises OSError when it has ended."""
    state, _, _, _, _, _, flags, *_ = stat_of(f"{proc}/{pid}")[1]
    return state not in "ZX" and not int(flags) & KERNEL_THREAD


def find_aside(loop: Loop, find: Callable[[], Marked], judge: Callable[[Marked], None]) -> None:
    """Look for processes in a thread, then judge in the loop. Without more threads in this pod nothing is known."""
    unknown = Marked(set(), unsure=True)

    def work() -> Marked:
        try:
            return find()
        except RuntimeError:
            return unknown

    loop.aside(work, judge, lambda why: judge(unknown))


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
            return awaits_signal(file.read(), number)
    except OSError:
        return False  # it has ended


def awaits_signal(status: bytes, number: int) -> bool:
    masks = re.findall(rb"^Sig(?:Blk|Cgt):\t([0-9a-f]+)$", status, re.MULTILINE)
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


class RunSweep:
    """Ends what a run left behind: SIGTERM, then SIGKILL, until nothing is left or `kill_seconds` are over since then.

    `done` gets how many processes it were, and those that are left all the same. The run's cgroup is removed. While
    known processes are left, nothing is read from any process; then environments are, in a thread.
    """

    def __init__(
        self,
        loop: Loop,
        marks: RunMarks,
        kill_seconds: float,
        done: Callable[[int, Sequence[int]], None],
        term_seconds: float = TERM_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loop = loop
        self._marks = marks
        self._done = done
        self._now = now
        self._started = now()
        self._kill_at = self._started + term_seconds
        self._kill_seconds = kill_seconds
        self._give_up_at = self._kill_at + kill_seconds
        self._kills = False
        self._told: set[int] = set()
        """Processes that have got SIGTERM."""
        self._hanging: set[int] = set()
        loop.post(self._look)

    def _look(self) -> None:
        pids = known(self._marks)
        if pids:
            self._end(pids)
            return
        find_aside(self._loop, lambda: marked(self._marks.run, self._hanging), self._judge)

    def _judge(self, seen: Marked) -> None:
        # With a mark of the kernel's, what is in the middle of an exec and shows no environment was known before.
        kernel_knows = self._marks.group or self._marks.cgroup
        if seen.pids:
            self._end(seen.pids)
        elif seen.unsure and not kernel_knows and self._now() < self._started + UNSURE_SECONDS:
            self._loop.later(LOOK_AGAIN_SECONDS, self._look)
        elif self._marks.cgroup and not remove_cgroup(self._marks.cgroup) and self._now() < self._give_up_at:
            self._loop.later(LOOK_AGAIN_SECONDS, self._look)  # the last one is about to leave it
        else:
            self._done(len(self._told), ())

    def _end(self, pids: set[int]) -> None:
        now = self._now()
        if self._kills and now > self._give_up_at:
            self._done(len(self._told - pids), sorted(pids))
            return
        if not self._kills and now > self._kill_at:
            self._kills = True
            self._give_up_at = now + self._kill_seconds  # this agent may have been held up
        if self._kills and self._marks.cgroup:
            kill_cgroup(self._marks.cgroup)
        for pid in pids:
            if self._kills or pid not in self._told:
                send_signal(pid, signal.SIGKILL if pid in self._told else signal.SIGTERM)
        self._told |= pids
        self._loop.later(LOOK_AGAIN_SECONDS, self._look)

"""Where the processes of a run are, by /proc.

A process that hangs may make whoever looks at it hang too, so every look is in a thread with a deadline.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from agent.cutting import cut_at_word
from agent.machine.api import RunMarks
from agent.machine.evidence_text import STUCK, ProcessSeen, ThreadSeen, in_order
from agent.machine.files import read_value
from agent.machine.process import stat_of
from agent.machine.run_processes import all_pids, known, marked
from agent.machine.syscall_names import syscall_name
from agent.machine.workers import in_time

MOST_LOOKS = 32
"""At a time, for most of it is waiting."""
MOST_PROCESSES = 256
MOST_THREADS = 32
MOST_FRAMES = 12
MOST_PROGRAM = 200
ON_FILES = frozenset(
    {"accept", "accept4", "connect", "fdatasync", "flock", "fsync", "ioctl", "pread64", "pwrite64", "read", "readv"}
    | {"recvfrom", "recvmsg", "sendmsg", "sendto", "write", "writev"}
)
"""System calls whose first argument is a file descriptor."""
RANKS = ("OMPI_COMM_WORLD_RANK", "RANK")
LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK")


def processes_of(marks: RunMarks, deadline: float) -> tuple[list[ProcessSeen], list[str]]:
    """The run's processes as far as they could be looked at before the deadline (monotonic), and notes about that."""
    by_environ = marked(marks.run)
    pids = known(marks) | by_environ.pids
    pids |= dead_children(pids)
    seen: dict[int, ProcessSeen] = {}

    def look_at(pid: int) -> None:
        with suppress(OSError):  # it has ended
            for process in look(pid):
                seen[pid] = process

    chosen = sorted(pids, key=lambda pid: (not _is_stuck(pid), pid))[:MOST_PROCESSES]
    in_time([partial(look_at, pid) for pid in chosen], MOST_LOOKS, deadline)
    notes = [f"{len(pids)} processes, of which {len(chosen)} are shown"] if len(pids) > len(chosen) else []
    if by_environ.unsure and not (marks.group or marks.cgroup):
        notes.append("some processes of the pod could not be read in time: they may be of the run")
    return in_order(list(seen.values())), notes


def dead_children(pids: set[int]) -> set[int]:
    """Children of these that have ended and that nobody has asked how: they have lost all other marks of a run."""
    found = set()
    for pid in all_pids():
        with suppress(OSError):  # it is gone
            state, parent, *_ = stat_of(f"/proc/{pid}")[1]
            if state == "Z" and int(parent) in pids:
                found.add(pid)
    return found


def _is_stuck(pid: int) -> bool:
    try:
        return stat_of(f"/proc/{pid}")[1][0] in STUCK
    except OSError:
        return False  # it has ended


def look(pid: int) -> Iterator[ProcessSeen]:
    """What /proc says of a process, more and more of it. Raises OSError when it has ended."""
    name, fields = stat_of(f"/proc/{pid}")
    ticks = os.sysconf("SC_CLK_TCK")
    process = ProcessSeen(
        pid=pid,
        ppid=int(fields[1]),
        program=f"[{_printable(name)}]",
        state=fields[0],
        # The clock of field 22 of `stat`, which counts time in suspension as well.
        seconds=time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / ticks,
        cpu_seconds=(int(fields[11]) + int(fields[12])) / ticks,
    )
    yield process
    tids = main_first(pid, _tids(pid))
    process = replace(
        process,
        threads=tuple(_threads(pid, tids[:MOST_THREADS])),
        more_threads=max(0, len(tids) - MOST_THREADS),
        is_python=_is_python(pid),
    )
    yield process
    # These come last: they wait for the process's memory, which a call that hangs in the kernel may have locked.
    environ = dict(item.split("=", 1) for item in _text(f"/proc/{pid}/environ").split("\0") if "=" in item)
    process = replace(
        process,
        rank=_number(environ, RANKS),
        local_rank=_number(environ, LOCAL_RANKS),
        ras=environ.get("NCCL_RAS_ADDR", ""),
    )
    yield process
    program = _printable(_text(f"/proc/{pid}/cmdline").replace("\0", " "))
    yield replace(process, program=cut_at_word(program, MOST_PROGRAM) or process.program)


def main_first(pid: int, tids: Iterable[int]) -> list[int]:
    """The main thread, which has the number of the process, then the others. Numbers begin anew after the last."""
    return sorted(tids, key=lambda tid: (tid != pid, tid))


def thread_states(pid: int) -> set[str]:
    """The states that its threads are in now; empty when it has ended."""
    found = set()
    with suppress(OSError):
        for tid in _tids(pid):
            with suppress(OSError):  # it has ended
                found.add(stat_of(f"/proc/{pid}/task/{tid}")[1][0])
    return found


def _tids(pid: int) -> list[int]:
    return list(map(int, os.listdir(f"/proc/{pid}/task")))


def _threads(pid: int, tids: Sequence[int]) -> Iterator[ThreadSeen]:
    for tid in tids:
        path = f"/proc/{pid}/task/{tid}"
        with suppress(OSError):  # it has ended
            name, fields = stat_of(path)
            wchan = read_value(f"{path}/wchan")
            stack = read_value(f"{path}/stack").splitlines()
            call = read_value(f"{path}/syscall")
            yield ThreadSeen(
                tid=tid,
                name=_printable(name),
                state=fields[0],
                wchan="" if wchan == "0" else wchan,
                syscall=(called := syscall_name(call, os.uname().machine)),
                file=_file(pid, called, call),
                # `[<0>] futex_wait+0x85/0x110` → futex_wait
                stack=tuple(line.partition("] ")[2].partition("+")[0] for line in stack[:MOST_FRAMES]),
            )


def _file(pid: int, called: str, call: str) -> str:
    """What the first argument leads to, where that is a file descriptor."""
    words = call.split()
    if called not in ON_FILES or len(words) < 2:
        return ""
    with suppress(OSError, ValueError):
        return _printable(os.readlink(f"/proc/{pid}/fd/{int(words[1], 16)}"))
    return ""


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def _is_python(pid: int) -> bool:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python")
    except OSError:
        return False


def _number(environ: dict[str, str], names: Sequence[str]) -> int | None:
    values = [environ[name] for name in names if name in environ]
    return int(values[0]) if values and values[0].isdecimal() else None

"""Where the processes of a run are: what /proc says of them, and py-spy of those that are Python.

A process that hangs may make whoever looks at it hang too, so every look is in a thread with a deadline.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from agent.cutting import cut_at_word
from agent.machine.api import Evidence, RunMarks
from agent.machine.asking import Late, run_to_end
from agent.machine.evidence_text import STUCK, ProcessSeen, ThreadSeen, in_order, render
from agent.machine.files import read_value
from agent.machine.in_time import in_time
from agent.machine.process import find_program, stat_of
from agent.machine.run_processes import known, marked
from agent.machine.syscall_names import syscall_name

SECONDS = 9.5
LOOK_SHARE = 0.5
"""Part of the time after which the look at processes must be over."""
DUMP_SHARE = 0.4
"""Part of the time that the stacks of one Python process may take."""
MOST_LOOKS = 32
"""At a time, for most of it is waiting; dumps cost CPU."""
MOST_DUMPS = 8
MOST_PROCESSES = 256
MOST_THREADS = 32
MOST_FRAMES = 12
MOST_PROGRAM = 200
MOST_DUMP = 65536
MOST_REASON = 300
NO_PY_SPY = "py-spy is not installed (pip install py-spy): it would show the Python stacks"
ON_FILES = frozenset(
    {"accept", "accept4", "connect", "fdatasync", "flock", "fsync", "ioctl", "pread64", "pwrite64", "read", "readv"}
    | {"recvfrom", "recvmsg", "sendmsg", "sendto", "write", "writev"}
)
"""System calls whose first argument is a file descriptor."""
RANKS = ("OMPI_COMM_WORLD_RANK", "RANK")
LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK")


def gather(marks: RunMarks, path: str, seconds: float = SECONDS) -> Evidence:
    """Blocks for at most `seconds` and never raises; `path` is the search path for py-spy."""
    try:
        return _gather(marks, path, seconds)
    except Exception as error:  # such as no more threads: a run that hangs must still be ended
        return Evidence(problem := f"what {marks.run} does could not be found out: {error!r}\n", problem)


def _gather(marks: RunMarks, path: str, seconds: float) -> Evidence:
    started = time.monotonic()
    run_id, pids = marks.run, known(marks) | marked(marks.run).pids
    seen: dict[int, ProcessSeen] = {}

    def look_at(pid: int) -> None:
        with suppress(OSError):  # it has ended
            for process in look(pid):
                seen[pid] = process

    chosen = sorted(pids, key=lambda pid: (not _is_stuck(pid), pid))[:MOST_PROCESSES]
    in_time([partial(look_at, pid) for pid in chosen], MOST_LOOKS, started + seconds * LOOK_SHARE)
    notes = [f"{len(pids)} processes, of which {len(chosen)} are shown"] if len(pids) > len(chosen) else []
    processes = in_order(list(seen.values()))
    spy = find_program("py-spy", os.pathsep.join([path, os.path.dirname(sys.executable)]))
    if spy:
        processes = _with_dumps(spy, processes, started + seconds, seconds * DUMP_SHARE)
    elif any(process.is_python for process in processes):
        notes.append(NO_PY_SPY)
    return render(f"processes of {run_id}" if seen else f"{run_id} has no processes", processes, notes)


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
        seconds=time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / ticks,
        cpu_seconds=(int(fields[11]) + int(fields[12])) / ticks,
    )
    yield process
    tids = sorted(map(int, os.listdir(f"/proc/{pid}/task")))
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
        return os.readlink(f"/proc/{pid}/fd/{int(words[1], 16)}")
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


def _with_dumps(spy: str, processes: Sequence[ProcessSeen], deadline: float, each: float) -> list[ProcessSeen]:
    found: dict[int, tuple[str, str]] = {}

    def dump(pid: int) -> None:
        found[pid] = dump_python(spy, pid, min(each, deadline - time.monotonic()))

    pythons = [process.pid for process in processes if process.is_python and not process.is_ours]
    in_time([partial(dump, pid) for pid in pythons], MOST_DUMPS, deadline)
    late = dict.fromkeys(pythons, ("", "no time was left for it")) | found
    return [
        replace(process, dump=late[process.pid][0], no_dump=late[process.pid][1]) if process.pid in late else process
        for process in processes
    ]


def dump_python(spy: str, pid: int, seconds: float) -> tuple[str, str]:
    """Stacks of a Python process, or why there are none."""
    # Without a pause of the process: one that is stuck in the kernel would never come to it.
    argv = [spy, "dump", "--pid", str(pid), "--nonblocking"]
    try:
        done = run_to_end(argv, {}, max(0.0, seconds))
    except Late:
        return "", f"py-spy did not finish within {seconds:.1f} s"
    except OSError as error:
        return "", f"py-spy: {error}"
    if done.status:
        return "", f"py-spy: {reason(done.errors)}"
    lines = done.output[:MOST_DUMP].splitlines()
    return "\n".join(line for line in lines if not line.startswith("Process ")), ""


def reason(problem: str) -> str:
    """The error and its causes in one line, each once, without the stack of py-spy itself."""
    told = problem.partition("\nStack backtrace")[0].replace("Caused by:", "").splitlines()
    lines = [line.strip().removeprefix("Error: ") for line in told]
    causes = [line.partition(": ")[2] if line.partition(": ")[0].isdigit() else line for line in lines if line]
    return cut_at_word(": ".join(dict.fromkeys(causes)), MOST_REASON) or "it failed"

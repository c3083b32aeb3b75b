"""Where a process is, and whether that is a wait for other ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from agent.clinic.why.records import Frame, Process, Thread, Waiting
from agent.decide.diagnosis import Place

MOST_DETAILS = 6
ASLEEP = frozenset(
    [
        "clock_nanosleep",
        "nanosleep",
        "pause",
        "open",
        "openat",
        "read",
        "readv",
        "pread64",
        "write",
        "pwrite64",
        "flock",
        "fsync",
        "fdatasync",
        "getdents64",
        "newfstatat",
        "statx",
        "wait4",
        "waitid",
    ]
)
"""Calls of the system in which no collective library waits for another rank."""
UNNUMBERED = frozenset({"monitored_barrier", "init_process_group", "new_group", "new_group_with_tag"})
"""What torch waits in over its store, or by sends and receives, and does not record."""
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3\.\d+/|^<frozen |^(?:torch|mpi4py|multiprocessing)/")
_DECORATORS = frozenset({"wrapper", "inner", "_fn"})
_TORCH = re.compile(r"torch/distributed/(distributed_c10d|rendezvous|nn/functional|_functional_collectives)\.py$")
_MPI = re.compile(r"P?MPI_([A-Z]\w+)")
_MPI_COLLECTIVE = re.compile(
    r"(barrier|bcast|scan|exscan|(all)?gatherv?|scatterv?|(all)?reduce|reduce_scatter(_block)?|alltoall[vw]?)"
    r"|finalize|win_(create|allocate|fence|free)\w*|comm_(create|dup|split)\w*|file_(open|close|\w+_all)",
    re.IGNORECASE,
)
"""Those for which a rank may wait for all others of its communicator; all other calls wait for some ranks, or none."""
_NATIVE_WAIT = re.compile(r"(c10d::|gloo::|nccl[A-Z]|cuda\w*Synchronize|cuStreamSynchronize|cuEventSynchronize)")
_POINT_TO_POINT = re.compile(r"i?(recv|send)(_\w+)?", re.ASCII)
_LOADER = re.compile(r"torch/utils/data/|multiprocessing/(connection|queues)\.py$")


class Activity(NamedTuple):
    """What a rank does, by its stack."""

    kind: Literal["collective", "point to point", "elsewhere", "unknown"]
    """elsewhere: it certainly waits for no rank, as it sleeps, reads a file or waits for its data loader"""
    operation: str = ""
    peer: int | None = None
    """The rank that it waits for, point to point."""
    receives: bool = True
    in_group: bool = False
    """`peer` is a rank of the group, not of all."""


def activity(process: Process) -> Activity:
    """What its main thread waits for, as far as the stack shows."""
    frames = main_frames(process)
    if found := _operation(frames):
        return found
    first = process.waiting[0] if process.waiting else None
    # A socket may lead to another rank.
    in_files = first is not None and first.syscall in ASLEEP and not first.file.startswith("socket:")
    sleeps = in_files or "D" in (process.state, first.state if first else "")
    loads = any(_LOADER.search(frame.file) for frame in frames)
    return Activity("elsewhere" if sleeps or loads else "unknown")


def stays(first: Sequence[Thread], second: Sequence[Thread]) -> bool:
    """Whether a rank was in the same operation at the same place of its program at both looks, or in none at both."""
    if not first or not second:
        return False
    before, after = first[0].frames, second[0].frames
    operation = _operation(before)
    return operation == _operation(after) and (operation is None or code_of(before) == code_of(after))


def no_number_tells(threads: Sequence[Thread]) -> bool:
    """Whether only another look tells if the rank stays where it is: it is in nothing that torch counts."""
    operation = _operation(threads[0].frames) if threads else None
    return operation is None or operation.operation in UNNUMBERED


def code_of(frames: Sequence[Frame]) -> tuple[tuple[str, int | None, str], ...]:
    """The place of the program: its Python frames, the innermost first."""
    return tuple((frame.file, frame.line, frame.function) for frame in frames if not frame.is_native)


def main_frames(process: Process) -> Sequence[Frame]:
    """The stack of the thread that holds the GIL for good, else of the main one."""
    holders = [thread for thread in process.threads if thread.holds_gil and process.holds_gil]
    return next((thread.frames for thread in (*holders, *process.threads)), ())


def user_frame(frames: Sequence[Frame]) -> Frame | None:
    """The innermost frame of the user's own code, else the innermost Python frame."""
    python = [frame for frame in frames if not frame.is_native]
    return next((frame for frame in python if not _LIBRARY.search(frame.file)), python[0] if python else None)


def frame_text(frame: Frame) -> str:
    """dataloader.py:88 (next_batch)"""
    if frame.is_native:
        library = frame.file.rpartition("/")[2]
        return f"{frame.function} ({library})" if library else frame.function
    return f"{_short(frame.file)}:{frame.line} ({frame.function})"


def _short(path: str) -> str:
    """File name; of a library with its package, as `distributed_c10d.py` alone says little."""
    inside = re.sub(r"^.*(?:/(?:site|dist)-packages/|/lib/python3\.\d+/)", "", path)
    return inside if inside != path else path.rpartition("/")[2]


def place(process: Process, children: Sequence[Process] = ()) -> Place:
    """Where a rank is; with a child that it may wait for, such as a worker of a data loader."""
    frames = main_frames(process)
    details = tuple(frame_text(frame) for frame in frames[:MOST_DETAILS])
    own = user_frame(frames)
    text = frame_text(own) if own else ""
    call = _call(process.waiting[0]) if process.waiting else ""
    if process.state in ("T", "t"):
        by = "a debugger" if process.state == "t" else "a signal"
        return Place("stopped", f"stopped by {by}" + (f" in {text}" if text else ""), details)
    stuck = next((one for one in process.waiting if one.state == "D"), None)
    if process.state == "D" or stuck:
        return Place("kernel", _kernel(stuck or process.waiting[0] if process.waiting else None, text), details)
    if process.holds_gil:
        return Place("gil", f"{text or 'native code'}, and holds the GIL: no Python of it can run", details)
    if not text:
        native = next((frame_text(frame) for frame in frames if frame.is_native), "")
        if native:
            return Place("native", native, details)
        return Place("native", f"the system call {call}", details) if call else Place("unknown", "", details)
    return Place("python", text + _through(frames, call) + _child(frames, children), details)


def _operation(frames: Sequence[Frame]) -> Activity | None:
    """The call in which a rank waits for others."""
    for at, frame in enumerate(frames):
        if found := _waits(frame, frames[at:]):
            return found
    waits = any(frame.is_native and _NATIVE_WAIT.match(frame.function) for frame in frames)
    return Activity("collective") if waits else None


def _waits(frame: Frame, outer: Sequence[Frame]) -> Activity | None:
    if frame.is_native:
        found = _MPI.fullmatch(frame.function)
        if not found:
            return None
        is_collective = _MPI_COLLECTIVE.fullmatch(found[1])
        return Activity("collective" if is_collective else "point to point", f"MPI_{found[1]}")
    if not _TORCH.search(frame.file) or frame.function in _DECORATORS:
        return None
    if _POINT_TO_POINT.fullmatch(frame.function):
        return _point_to_point(frame)
    caller = next((one for one in outer[1:] if _TORCH.search(one.file) and one.function not in _DECORATORS), frame)
    if _POINT_TO_POINT.fullmatch(caller.function):
        return _point_to_point(caller)
    return Activity("collective", caller.function.lstrip("_"))


def _point_to_point(frame: Frame) -> Activity:
    receives = "recv" in frame.function
    for name in ("src", "group_src", "peer") if receives else ("dst", "group_dst", "peer"):
        if (value := frame.arguments.get(name, "")).isdecimal():
            return Activity("point to point", frame.function, int(value), receives, name.startswith("group_"))
    return Activity("point to point", frame.function, None, receives)


def _through(frames: Sequence[Frame], call: str) -> str:
    """The innermost frame where that is a library's, and the call of the system."""
    python = [frame for frame in frames if not frame.is_native]
    inner = python[0] if python and python[0] is not user_frame(frames) else None
    parts = [f"through {frame_text(inner)}"] if inner else []
    parts += [f"in the system call {call}"] if call.partition(" ")[0] in ASLEEP else []
    return "".join(f", {part}" for part in parts)


def _child(frames: Sequence[Frame], children: Sequence[Process]) -> str:
    """The child that a rank waits for, if it is in its data loader or the child cannot go on."""
    loads = any(_LOADER.search(frame.file) for frame in frames)
    # A child that has ended stays until its rank asks how. That matters only to a rank that waits for its children.
    stuck = [one for one in children if one.state in ("T", "t", "D") or (loads and one.state in ("Z", "gone"))]
    busy = [one for one in children if loads and activity(one).kind == "elsewhere" and _own(one)]
    for child in (stuck or busy)[:1]:
        return f"; its worker, pid {child.pid}, {_does(child)}"
    return ""


def _does(child: Process) -> str:
    if child.state in ("Z", "gone"):
        return "has ended"
    at = place(child)
    return f"is {at.text}" if at.kind == "stopped" else f"is in {at.text}"


def _own(process: Process) -> bool:
    """It is in the user's code, not in a library's wait for work."""
    frames = [frame for frame in main_frames(process) if not frame.is_native]
    return bool(frames) and frames[0] is user_frame(frames)


def _kernel(waiting: Waiting | None, code: str) -> str:
    call = _call(waiting) if waiting else ""
    return f"the kernel, where no signal reaches it{f', in {call}' if call else ''}{f', from {code}' if code else ''}"


def _call(waiting: Waiting) -> str:
    """openat of /mnt/data (wait_for_partner); empty where it runs, or nothing is known."""
    if waiting.syscall in ("", "running"):
        return waiting.wchan
    text = waiting.syscall + (f" of {waiting.file}" if waiting.file else "")
    says_more = waiting.wchan and "nanosleep" not in waiting.wchan
    return text + (f" ({waiting.wchan})" if says_more else "")

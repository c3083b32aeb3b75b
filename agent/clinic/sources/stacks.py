"""Stacks of Python processes, as `py-spy dump --json` prints them.

Of the arguments only those stay that say whom a rank waits for.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Any

from agent.clinic.sources.question import APART_SECONDS, NoAnswer
from agent.clinic.sources.source import DUMP_SHARE, Job, Look, WhySource
from agent.clinic.why.members import GroupMember
from agent.clinic.why.places import no_number_tells, stays, user_frame
from agent.clinic.why.records import Frame, Thread
from agent.cutting import cut_at_word
from agent.machine.asking import MOST_REASON, Late, run_to_end, text_of
from agent.machine.evidence import thread_states
from agent.machine.evidence_text import ProcessSeen
from agent.machine.process import find_program

NO_PY_SPY = "py-spy is not installed (pip install py-spy): it would show the Python stacks"
MOST_DUMPS = 8
"""At a time."""
MOST_FRAMES = 12
"""The innermost ones of each thread."""
TELLING_ARGUMENTS = frozenset({"src", "dst", "group_src", "group_dst", "peer", "tag", "root"})
"""Arguments of a frame that say whom a rank waits for: the only ones that are kept, as others may hold secrets."""
MOST_THREADS = 16
MOST_ARGUMENT = 40
MOST_FUNCTION = 120
_NAMELESS = re.compile(r"0x[0-9a-f]+")


class StackSource(WhySource):
    name = "stacks"

    def __init__(self, look: Look) -> None:
        super().__init__(look)
        self._first: dict[int, tuple[float, tuple[Thread, ...]]] = {}
        """Native stacks of a first look, and when they were taken."""
        self._looked: dict[int, threading.Event] = {}
        self._dumping = threading.Semaphore(MOST_DUMPS)

    def jobs(self) -> Iterator[Job]:
        look = self.look
        python = [one for one in look.processes if one.is_python and not one.is_ours]
        python = [one for one in python if look.roles[one.pid] != "launcher"]
        spy = find_program("py-spy", os.pathsep.join([look.question.path, os.path.dirname(sys.executable)]))
        if not spy:
            for one in python:
                self.says("unavailable", NO_PY_SPY, one.pid)
            return
        for one in python:
            yield partial(self.take, spy, one)
        for one in python:
            # After all first looks, because each waits for its own and would hold up a thread meanwhile.
            if self._needs_native(one):
                yield partial(self._take_again, spy, one.pid)

    def _needs_native(self, process: ProcessSeen) -> bool:
        """Where torch records nothing, as in a rank of MPI, only native frames say what it waits in."""
        return process.pid not in self.look.sockets and self.look.roles[process.pid] == "rank"

    def take(self, spy: str, process: ProcessSeen) -> None:
        pid = process.pid
        threads = self._dumped(spy, pid, native=True) if self._needs_native(process) else ()
        if threads:
            self._first[pid] = (time.monotonic(), threads)
        else:
            threads = self._dumped(spy, pid)
        if threads:
            self.gives(pid, threads=threads)
        self._has_looked(pid).set()
        if pid in self.look.sockets and process.state not in "Tt" and threads:
            self._look_again(spy, pid, threads)

    def _look_again(self, spy: str, pid: int, first: tuple[Thread, ...]) -> None:
        """Where one look does not tell whether a rank of torch stays where it is."""
        has_gil = any(thread.holds_gil for thread in first)
        if not has_gil and not no_number_tells(first):
            return
        self.look.wait_between_looks()
        second = self._dumped(spy, pid)
        if not second:
            return
        if has_gil:  # whoever had it at one moment may have let it go in the next
            self.gives(pid, holds_gil=same_holder(first, second))
        self.gives(pid, stays=stays(first, second))

    def _take_again(self, spy: str, pid: int) -> None:
        """Where there are native frames: no number says whether the rank goes on."""
        self._has_looked(pid).wait(self.look.left())
        if pid not in self._first:
            return
        at, first = self._first[pid]
        threading.Event().wait(min(max(0.0, at + APART_SECONDS - time.monotonic()), self.look.left()))
        if second := self._dumped(spy, pid, native=True):
            self.gives(pid, stays=stays(first, second))

    def _has_looked(self, pid: int) -> threading.Event:
        return self._looked.setdefault(pid, threading.Event())

    def _dumped(self, spy: str, pid: int, *, native: bool = False) -> tuple[Thread, ...]:
        try:
            with self._dumping:
                if native and not may_be_paused(thread_states(pid)):
                    return ()
                return read_py_spy(dump_json(spy, pid, self.look.at_most(DUMP_SHARE), native=native))
        except NoAnswer as error:
            if not native:  # those without native frames are tried then
                self.says("unavailable", str(error), pid)
            return ()

    def described(self, process: ProcessSeen) -> ProcessSeen:
        why = [one.why for one in self.look.said() if one.name == self.name and process.pid in one.pids]
        threads = self.given.get(process.pid, {}).get("threads", ())
        dump = "\n".join(line for thread in threads for line in _lines(thread))
        return replace(process, dump=dump, no_dump=" ".join(why))

    @classmethod
    def shows(cls, member: GroupMember) -> bool:
        return member.process is not None and bool(member.process.threads)


def _lines(thread: Thread) -> Iterator[str]:
    gil = ", holds the GIL" if thread.holds_gil else ""
    yield f'Thread {thread.tid or "?"}{gil}: "{thread.name}"'
    for frame in [frame for frame in thread.frames if not frame.is_native] or thread.frames:
        place = os.path.basename(frame.file) + ("" if frame.is_native else f":{frame.line}")
        arguments = "".join(f", {name}={value}" for name, value in frame.arguments.items())
        yield f"    {frame.function} ({place}{arguments})"


def may_be_paused(states: Set[str]) -> bool:
    """Whether a process whose threads are in these states can be paused for a moment: while one waits in the kernel
    (D), py-spy waits for it, and keeps the others stopped until it is given up."""
    return bool(states) and states <= {"R", "S"}


def dump_json(spy: str, pid: int, seconds: float, *, native: bool = False) -> str:
    """py-spy's dump as JSON, with the local variables of each frame. Raises NoAnswer.

    The process is not paused for it: one that is stuck in the kernel would never come to that. For the `native` frames
    between the Python ones it has to be, for 20 ms (`may_be_paused`).
    """
    argv = [spy, "dump", "--pid", str(pid), "--native" if native else "--nonblocking", "--json", "--locals"]
    try:
        done = run_to_end(argv, {}, max(0.0, seconds))
    except Late:
        raise NoAnswer(f"py-spy did not finish within {seconds:.1f} s") from None
    except OSError as error:
        raise NoAnswer(f"py-spy: {error}") from None
    if done.status:
        raise NoAnswer(f"py-spy: {_reason(text_of(done.errors))}")
    return text_of(done.output)


def _reason(problem: str) -> str:
    """The error and its causes in one line, each once, without the stack of py-spy itself."""
    told = problem.partition("\nStack backtrace")[0].replace("Caused by:", "").splitlines()
    lines = [line.strip().removeprefix("Error: ") for line in told]
    causes = [line.partition(": ")[2] if line.partition(": ")[0].isdigit() else line for line in lines if line]
    return cut_at_word(": ".join(dict.fromkeys(causes)), MOST_REASON) or "it failed"


def read_py_spy(text: str) -> tuple[Thread, ...]:
    """The threads of `py-spy dump --json`, the main one first; empty when there are none."""
    try:
        data, _ = json.JSONDecoder().raw_decode(text.lstrip())
    except ValueError:
        return ()
    return _in_order([_thread(thread) for thread in data if isinstance(thread, Mapping)])


def same_holder(first: Sequence[Thread], second: Sequence[Thread]) -> bool:
    """Whether one thread held the GIL in the same line of its program at both looks."""

    def holder(threads: Sequence[Thread]) -> tuple[int | None, Frame] | None:
        return next(((one.tid, one.frames[0]) for one in threads if one.holds_gil), None)

    return holder(first) is not None and holder(first) == holder(second)


def _thread(thread: Mapping[str, Any]) -> Thread:
    frames = [_frame(frame) for frame in thread.get("frames") or () if isinstance(frame, Mapping)]
    tid = thread.get("os_thread_id")
    return Thread(
        name=str(thread.get("thread_name") or ""),
        frames=_cut(frames),
        holds_gil=thread.get("owns_gil") is True,
        tid=tid if isinstance(tid, int) else None,
    )


def _frame(frame: Mapping[str, Any]) -> Frame:
    """py-spy gives a native frame line 0, and as its module the library that it is from."""
    line, module = frame.get("line"), frame.get("module")
    native = not line and bool(module)
    arguments = {str(one.get("name")): str(one.get("repr")) for one in frame.get("locals") or () if one.get("arg")}
    return Frame(
        function=str(frame.get("name", "")).rpartition("<locals>.")[2][:MOST_FUNCTION],
        file=str(module if native else frame.get("filename", "")),
        line=None if native or not isinstance(line, int) else line,
        arguments={name: value[:MOST_ARGUMENT] for name, value in arguments.items() if name in TELLING_ARGUMENTS},
    )


def _cut(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The innermost, without native frames that have no name."""
    named = [frame for frame in frames if not (frame.is_native and _NAMELESS.fullmatch(frame.function))]
    kept = named[:MOST_FRAMES]
    own = user_frame(named)
    return tuple(kept if own is None or own in kept else [*kept[:-1], own])


def _in_order(threads: Sequence[Thread]) -> tuple[Thread, ...]:
    """The main thread first; one without frames says nothing."""
    told = [thread for thread in threads if thread.frames]
    return tuple(sorted(told, key=lambda thread: thread.name != "MainThread")[:MOST_THREADS])

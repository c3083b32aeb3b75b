"""Stacks of Python processes, as `py-spy dump --json` prints them.

Of the arguments only those stay that say whom a rank waits for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent.clinic.why.places import user_frame
from agent.clinic.why.records import MOST_FRAMES, TELLING_ARGUMENTS, Frame, Thread

MOST_THREADS = 16
MOST_ARGUMENT = 40
MOST_FUNCTION = 120
_NAMELESS = re.compile(r"0x[0-9a-f]+")


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

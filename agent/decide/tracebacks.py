"""Tracebacks on stderr, whose lines may be mixed with those of other ranks, and which of them are shown when a run was
told to end: a checkpoint that could not be saved then is told by nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from agent.decide.ending import JobEnd, is_told
from agent.decide.missed_peer import misses_a_peer
from agent.errors import Exit

INSIDE = re.compile(rb"\s|$")
"""Parts of a frame, directly below another line that waits: the place, the source, the marks under it."""
CHAIN = re.compile(rb"During handling of the above exception|The above exception was the direct cause")
EXCEPTION = re.compile(rb"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|BdbQuit)\b(?::|$)")
_RANK = re.compile(rb"\[(?:rank|default)\d+\]: ?")
_TRACEBACK = b"Traceback (most recent call last):"
_LOGGING = b"--- Logging error ---"
_OF_INTERRUPT = re.compile(rb"KeyboardInterrupt\b|torch\.distributed\.elastic\.")


class HeldLines(NamedTuple):
    """Whole lines of one pod that wait."""

    pod: int
    since: float
    text: bytes


def was_ended(end: JobEnd) -> bool:
    """Whether the run was told to end: what a program fails in then, as in saving a checkpoint, is not what the end is
    about."""
    return is_told(end) or (end.origin == "agent" and end.code == Exit.TIME_LIMIT)


def own_errors(held: Iterable[HeldLines]) -> list[HeldLines]:
    """The tracebacks of what failed while a run ended, each once for all ranks: they are equal if only numbers differ.
    Left out is what the interrupt itself raised, in torchrun too, and what ranks say of peers that had ended."""
    found, known = list[HeldLines](), set[bytes]()
    for trace in _traces(held):
        bare = [_bare(one) for one in trace]
        text = re.sub(rb"\d+", b"0", b"\n".join(filter(None, bare)))
        if text not in known and any(map(_is_own, bare)):
            known.add(text)
            found += trace
    return found


def _is_own(line: bytes) -> bool:
    if not EXCEPTION.match(line) or _OF_INTERRUPT.match(line):
        return False
    return not misses_a_peer(line.decode(errors="replace"))


def _bare(line: HeldLines) -> bytes:
    return _RANK.sub(b"", line.text.rstrip(b"\r\n"), count=1)


def _traces(held: Iterable[HeldLines]) -> Iterator[list[HeldLines]]:
    """The lines of each traceback with those that it was raised from. Lines of several ranks may be mixed: torch marks
    those of a rank that has joined the others."""
    traces = list[list[HeldLines]]()
    open_traces = dict[tuple[int, bytes], list[HeldLines]]()
    before = dict[tuple[int, bytes], bytes]()
    """Source → its last line that is not empty."""
    latest = dict[int, tuple[int, bytes]]()
    """Pod → the source of its last line: torch marks no empty ones."""
    for one in held:
        line, rank = _bare(one), _RANK.match(one.text)
        source = latest.get(one.pod, (one.pod, b"")) if not line else (one.pod, rank[0] if rank else b"")
        latest[one.pod] = source
        last = before.get(source, b"")
        if line == _TRACEBACK and not CHAIN.match(last):
            open_traces[source] = []
            if last != _LOGGING:  # logging's own error is shown nowhere
                traces.append(open_traces[source])
        elif not (line == _TRACEBACK or INSIDE.match(line) or EXCEPTION.match(line) or CHAIN.match(line)):
            open_traces.pop(source, None)
        if source in open_traces:
            open_traces[source].append(one)
        before[source] = line or last
    yield from traces

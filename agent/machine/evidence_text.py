"""What was seen of a run's processes, as values; and as text for people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agent.cutting import cut_at_word

MOST_TEXT = 256 * 1024
MOST_SUMMARY = 2048
MOST_SUMMARY_LINE = 240
SUMMARY_FRAMES = 3
SUMMARY_PROGRAM = 60
OURS = re.compile(r"/(last-words\.py|hold-rank\.py|rank\.sh) ")
"""Programs of the agent that stand before a rank's own and wait for its end."""
STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting in the kernel, cannot be interrupted",
    "T": "stopped",
    "t": "stopped by a debugger",
    "Z": "ended, not yet waited for",
    "X": "ended",
    "I": "idle",
}
STUCK = frozenset("TtZD")
"""States of a process that others may wait for in vain: it comes first, even if it is ours."""
_STUCK_LINE = re.compile(rf"pid \d+ .*: [{''.join(sorted(STUCK))}]( |$)")


class EvidenceText(NamedTuple):
    """Where the processes of a run were found."""

    text: str
    """Everything that is known, for people; at most 256 KiB."""
    summary: str
    """A line for each process, at most 2 KiB; empty when there are none."""


@dataclass(frozen=True)
class ThreadSeen:
    """One thread; what could not be read is empty."""

    tid: int
    name: str
    state: str
    """One letter, as in /proc."""
    wchan: str = ""
    """Function of the kernel in which it waits."""
    syscall: str = ""
    stack: tuple[str, ...] = ()
    """Functions of the kernel, the innermost first."""
    file: str = ""
    """What the descriptor of the system call leads to."""

    def place(self) -> str:
        parts = [self.syscall, f"in {self.wchan}" if self.wchan else ""]
        return " ".join(part for part in parts if part)


@dataclass(frozen=True)
class ProcessSeen:
    """One process of the run."""

    pid: int
    ppid: int
    program: str
    state: str
    seconds: float
    """Since its start."""
    cpu_seconds: float
    rank: int | None = None
    local_rank: int | None = None
    ras: str = ""
    """Its NCCL_RAS_ADDR."""
    threads: tuple[ThreadSeen, ...] = ()
    more_threads: int = 0
    is_python: bool = False
    dump: str = ""
    """Python stacks of all its threads, as py-spy prints them."""
    no_dump: str = ""
    """Why there is no dump although one was tried."""

    @property
    def is_ours(self) -> bool:
        """A process whose place in the code nobody needs to know."""
        return OURS.search(self.program) is not None


def render(title: str, processes: Sequence[ProcessSeen], notes: Sequence[str]) -> EvidenceText:
    """Each process has its share of the space."""
    processes = in_order(processes)
    blocks = [_process(process) for process in processes]
    text = "\n".join([title, *notes]) + "\n"
    for done, block in enumerate(blocks):
        share = (MOST_TEXT - len(text.encode())) // (len(blocks) - done)
        text += shortened(f"\n{block}\n", share)
    asked_for = [process for process in processes if process.state in STUCK or not process.is_ours]
    lines = [shortened(_summary(process), MOST_SUMMARY_LINE) for process in asked_for]
    return EvidenceText(text, shortened("".join(f"{line}\n" for line in lines or notes), MOST_SUMMARY))


def in_order(processes: Sequence[ProcessSeen]) -> list[ProcessSeen]:
    """What is stuck; then the rank programs by rank, what has no rank, children of rank programs, which inherit the
    rank, and ours."""
    ranks = {process.pid: process.rank for process in processes if not process.is_ours}

    def key(process: ProcessSeen) -> tuple[bool, int, int, int]:
        is_free = process.state not in STUCK
        if process.is_ours:
            return is_free, 3, process.rank or 0, process.pid
        if process.rank is None:
            return is_free, 1, 0, process.pid
        return is_free, (2 if ranks.get(process.ppid) == process.rank else 0), process.rank, process.pid

    return sorted(processes, key=key)


def shortened(text: str, most: int) -> str:
    """At most `most` bytes: whole lines and how many more there were, or a line that ends in "…"."""
    if len(text.encode()) <= most:
        return text
    lines, kept, size = text.splitlines(), list[str](), len("  … 1234567 more lines\n".encode())
    for line in lines:
        size += len(line.encode()) + 1
        if size > most:
            break
        kept.append(line)
    if not kept:
        return text.encode()[: max(0, most - 3)].decode(errors="ignore") + "…"
    return "\n".join([*kept, f"  … {len(lines) - len(kept)} more lines"]) + "\n"


def innermost(dump: str) -> list[str]:
    """Frames of the main thread, or of the first one, the innermost first."""
    threads = [part for part in re.split(r"^(?=Thread )", dump, flags=re.M) if part.startswith("Thread ")]
    chosen = next((part for part in threads if '"MainThread"' in part.partition("\n")[0]), "".join(threads[:1]))
    return [line.strip() for line in chosen.splitlines()[1:] if line.startswith("    ")]


def _process(process: ProcessSeen) -> str:
    here = "" if process.local_rank is None else f" ({process.local_rank} here)"
    rank = "" if process.rank is None else f"rank {process.rank}{here}: "
    head = f"{rank}pid {process.pid}, parent {process.ppid}, state {process.state}"
    head += f" ({STATES[process.state]})" if process.state in STATES else ""
    head += f", for {process.seconds:.1f} s, {process.cpu_seconds:.1f} s of CPU"
    lines = [head, f"  {process.program}"]
    if process.no_dump:
        lines.append(f"  no Python stacks: {process.no_dump}")
    lines += [f"  {line}" for line in process.dump.splitlines() if line]
    for thread in process.threads:
        stack = f", kernel stack: {' < '.join(thread.stack)}" if thread.stack else ""
        lines.append(f"  thread {thread.tid} {thread.name}: {thread.state} {thread.place()}".rstrip() + stack)
    if process.more_threads:
        lines.append(f"  and {process.more_threads} more threads")
    return "\n".join(lines)


def is_stuck(line: str) -> bool:
    """Whether a line of a summary tells of a process that is stuck."""
    return _STUCK_LINE.search(line) is not None


def _summary(process: ProcessSeen) -> str:
    frames = innermost(process.dump)[:SUMMARY_FRAMES]
    place = " < ".join(frames) if frames else process.threads[0].place() if process.threads else ""
    path, _, arguments = process.program.partition(" ")
    program = cut_at_word(f"{path.rpartition('/')[2]} {arguments}".rstrip(), SUMMARY_PROGRAM)
    rank = "" if process.rank is None else f"rank {process.rank}: "
    return f"{rank}pid {process.pid} {program}: {process.state} {place}".rstrip()

"""The run's processes, by /proc, and which of them are its ranks: the source that all others build on."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from agent.clinic.sources.question import Question
from agent.clinic.sources.source import WhySource
from agent.clinic.why.members import GroupMember
from agent.clinic.why.records import PodRecords, Process, Role, Waiting
from agent.machine.evidence import processes_of
from agent.machine.evidence_text import ProcessSeen

PROCESSES_SHARE = 0.3
"""Part of the time after which /proc must have been read."""
OWN_THREADS = "pt_workerserver"
"""Name of the threads of torch's server, which is there because of us."""
LAUNCHERS = re.compile(
    r"(^|[/ ])(mpirun|mpiexec|prterun|orted|prted|prte|torchrun)( |$)| -m torch\.distributed\.(run|launch)( |$)"
)


class ProcessSource(WhySource):
    name = "processes"

    def jobs(self) -> tuple[()]:
        """Reads at once, as the other sources ask what it finds."""
        look, question = self.look, self.look.question
        look.processes, look.notes = processes_of(question.marks, look.until(PROCESSES_SHARE))
        noted = known_ranks(question)
        look.roles = roles(look.processes, noted)
        alive = {one.rank for one in look.ranks}
        ended = {one.pid for one in look.processes if one.state == "Z"}
        is_gone = {pid: pid in ended or not os.path.exists(f"/proc/{pid}") for pid in noted}
        look.gone = {pid: rank for pid, rank in sorted(noted.items()) if rank not in alive and is_gone[pid]}
        sockets = {one.pid: f"{question.why_dir}/{one.pid}.sock" for one in look.processes}
        look.sockets = {pid: path for pid, path in sockets.items() if os.path.exists(path)}
        return ()

    def add_to(self, pod: PodRecords) -> PodRecords:
        found = [_process(one, self.look.roles[one.pid]) for one in self.look.processes]
        gone = [Process(pid, 0, "gone", "rank", rank) for pid, rank in self.look.gone.items()]
        return pod._replace(processes=(*found, *gone))

    @classmethod
    def shows(cls, member: GroupMember) -> bool:
        return member.process is not None and member.process.state not in ("?", "gone")


def _process(process: ProcessSeen, role: Role) -> Process:
    waiting = tuple(
        Waiting(one.state, one.wchan, one.syscall, one.file)  # type: ignore[arg-type]
        for one in process.threads
        if one.name != OWN_THREADS
    )
    return Process(process.pid, process.ppid, process.state, role, process.rank, waiting)  # type: ignore[arg-type]


def known_ranks(question: Question) -> dict[int, int]:
    """Process → rank: the hook's notes, else what entrypoints/rank.sh has started and not recorded the end of, which
    may be a shell that starts the rank."""
    noted = {pid: int(text) for pid, text in _numbered(question.why_dir) if text.strip().isdecimal()}
    found: dict[int, int] = {}
    for rank, text in _numbered(question.ranks_dir):
        match text.split():
            case ["started", pid, *rest] if pid.isdecimal() and "ended" not in rest and rank not in noted.values():
                found[int(pid)] = rank
    return found | noted


def _numbered(directory: str) -> Iterator[tuple[int, str]]:
    """The files whose names are numbers, with their texts."""
    with suppress(OSError):
        for name in filter(str.isdecimal, os.listdir(directory)):
            with suppress(OSError, ValueError), open(f"{directory}/{name}") as file:
                yield int(name), file.read()


def roles(processes: Sequence[ProcessSeen], noted: Mapping[int, int]) -> dict[int, Role]:
    """Role by process. `noted`: process → rank of those that are known as ranks, also when they are gone.

    A rank's number is in the environment of all that it starts. Of the processes with one number the rank is the one
    that was noted, else the outermost that is not ours. One whose parent is gone, as of a daemon or of a rank that has
    ended, is no rank where another is known.
    """
    by_pid = {process.pid: process for process in processes}
    found: dict[int, Role] = {}
    for process in processes:
        if process.rank is None:
            found[process.pid] = "launcher" if LAUNCHERS.search(process.program) else "other"
        elif process.is_ours:
            found[process.pid] = "other"
        else:
            found[process.pid] = _of_rank(process, by_pid, noted)
    return found


def _of_rank(process: ProcessSeen, by_pid: Mapping[int, ProcessSeen], noted: Mapping[int, int]) -> Role:
    if process.pid in noted:
        return "rank"
    above = _above(process, by_pid)
    if any(one.pid in noted for one in above):
        return "child"
    if any(other in noted and by_pid[other].rank == process.rank for other in by_pid):
        return "other"  # a shell that started the noted one
    if process.rank in noted.values() and process.ppid not in by_pid and not above:
        return "child"  # of a rank that is gone: a worker of its data loader may outlive it
    is_orphan = process.ppid not in by_pid
    is_left = is_orphan and any(_is_started(other, process.rank, by_pid) for other in by_pid.values())
    return "child" if above or is_left else "rank"


def _is_started(process: ProcessSeen, rank: int | None, by_pid: Mapping[int, ProcessSeen]) -> bool:
    """It has that rank's number, and what has started it is there."""
    return process.rank == rank and not process.is_ours and process.ppid in by_pid


def _above(process: ProcessSeen, by_pid: Mapping[int, ProcessSeen]) -> list[ProcessSeen]:
    """Processes of the same rank that it comes from."""
    found: list[ProcessSeen] = []
    parent = by_pid.get(process.ppid)
    while parent is not None and parent.rank == process.rank and not parent.is_ours and parent not in found:
        found.append(parent)
        parent = by_pid.get(parent.ppid)
    return found

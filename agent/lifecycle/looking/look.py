"""Everything that this pod can say of a run that stands still, read side by side, each with a deadline."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

from agent.health.why.records import PodRecords, Process, Source, Thread, Waiting
from agent.health.why.roles import Role, SeenProcess, roles
from agent.lifecycle.looking.answers import ALL_SHARE, Answers, Times
from agent.lifecycle.looking.asking import ask_ras_twice, ask_recorder, take_dump, take_stacks
from agent.lifecycle.looking.left import dumps_in, noted_ranks, started_ranks
from agent.lifecycle.looking.question import LookAnswer, Question
from agent.machine.api import RunMarks
from agent.machine.evidence import processes_of
from agent.machine.evidence_text import ProcessSeen, render
from agent.machine.health.nccl_ras import DEFAULT_ADDRESS
from agent.machine.health.stacks import NO_PY_SPY
from agent.machine.process import find_program
from agent.machine.workers import in_time

PROCESSES_SHARE = 0.3
"""Part of the time after which /proc must have been read."""
MOST_AT_ONCE = 32
OWN_THREADS = "pt_workerserver"
"""Name of the threads of torch's server, which is there because of us."""
MOST_DUMPS = 8
NO_SOCKET = "no socket in {}: torch older than 2.9 or none, a Python that reads no PYTHONPATH (-I, -E, -S)"


def look(question: Question) -> LookAnswer:
    """Never takes much longer than `question.seconds`."""
    times = Times(time.monotonic(), question.seconds)
    marks = RunMarks(question.run, question.group, question.cgroup)
    processes, notes = processes_of(marks, times.until(PROCESSES_SHARE))
    noted = noted_ranks(question.why_dir)
    facts = [SeenProcess(one.pid, one.ppid, one.rank, one.program, one.is_ours) for one in processes]
    role = roles(facts, noted)
    answers = Answers()
    jobs = list(_jobs(question, processes, role, noted, answers, times))
    in_time(jobs, MOST_AT_ONCE, times.until(ALL_SHARE))
    records = _records(question, processes, role, noted, answers)
    title = f"processes of {question.run}" if processes else f"{question.run} has no processes"
    text, summary = render(title, [_described(one, answers) for one in processes], notes)
    return LookAnswer(records, text, summary)


def _described(process: ProcessSeen, answers: Answers) -> ProcessSeen:
    """With its stacks, for people."""
    why = [why for (source, why), pids in answers.missing.items() if source == "stacks" and process.pid in pids]
    dump = "\n".join(line for thread in answers.threads.get(process.pid, ()) for line in _lines(thread))
    return replace(process, dump=dump, no_dump=" ".join(why))


def _lines(thread: Thread) -> Iterable[str]:
    gil = ", holds the GIL" if thread.holds_gil else ""
    yield f'Thread {thread.tid or "?"}{gil}: "{thread.name}"'
    for frame in [frame for frame in thread.frames if not frame.is_native] or thread.frames:
        place = os.path.basename(frame.file) + ("" if frame.is_native else f":{frame.line}")
        arguments = "".join(f", {name}={value}" for name, value in frame.arguments.items())
        yield f"    {frame.function} ({place}{arguments})"


def _jobs(
    question: Question,
    processes: Iterable[ProcessSeen],
    role: Mapping[int, Role],
    noted: Mapping[int, int],
    answers: Answers,
    times: Times,
) -> Iterable[Callable[[], None]]:
    """The longest first."""
    spy = find_program("py-spy", os.pathsep.join([question.path, os.path.dirname(sys.executable)]))
    dumps = threading.Semaphore(MOST_DUMPS)
    ranks = [one for one in processes if role[one.pid] == "rank"]
    addresses = sorted({one.ras or DEFAULT_ADDRESS for one in ranks}) if question.prepared else []
    for name in dumps_in(question.why_dir):
        yield partial(take_dump, question.why_dir, name, answers)
    if addresses:
        yield partial(ask_ras_twice, addresses[0], question.why_dir, answers, times)
    for one in ranks:
        path = f"{question.why_dir}/{one.pid}.sock"
        if os.path.exists(path):
            yield partial(ask_recorder, one.pid, path, question.why_dir, answers, times)
        elif question.prepared:
            answers.lacks("recorder", NO_SOCKET.format(question.why_dir), one.pid)
        else:
            answers.lacks("recorder", "A4_WHY=false", one.pid)
    for one in processes:
        if one.is_python and not one.is_ours and role[one.pid] != "launcher":
            if spy:
                path = f"{question.why_dir}/{one.pid}.sock"
                yield partial(take_stacks, spy, one, path if os.path.exists(path) else "", answers, times, dumps)
            else:
                answers.lacks("stacks", NO_PY_SPY, one.pid)


def _records(
    question: Question,
    processes: Iterable[ProcessSeen],
    role: Mapping[int, Role],
    noted: Mapping[int, int],
    answers: Answers,
) -> PodRecords:
    found = [_process(one, role[one.pid], answers) for one in processes]
    alive = {one.rank for one in found if one.role == "rank"}
    gone = {pid: rank for pid, rank in {**noted, **started_ranks(question.ranks_dir)}.items() if rank not in alive}
    lost = [
        Process(pid, 0, "gone", "rank", rank, groups=answers.dumps.get(rank, ()))
        for pid, rank in sorted(gone.items())
        if not os.path.exists(f"/proc/{pid}")
    ]
    return PodRecords(
        question.pod,
        question.name,
        question.node,
        question.hosts,
        processes=(*found, *lost),
        ras=answers.ras,
        sources=tuple(_sources(answers, tuple(one.pid for one in lost if one.groups))),
    )


def _process(process: ProcessSeen, role: Role, answers: Answers) -> Process:
    pid = process.pid
    return Process(
        pid=pid,
        parent=process.ppid,
        state=process.state,  # type: ignore[arg-type]
        role=role,
        rank=process.rank,
        waiting=tuple(
            Waiting(one.state, one.wchan, one.syscall, one.file)  # type: ignore[arg-type]
            for one in process.threads
            if one.name != OWN_THREADS
        ),
        threads=answers.threads.get(pid, ()),
        holds_gil=answers.gil.get(pid),
        groups=answers.groups.get(pid, ()),
    )


def _sources(answers: Answers, with_dump: tuple[int, ...]) -> Iterable[Source]:
    if with_dump:
        yield Source("dump", "found", pids=with_dump)
    for (name, why), lacking in answers.missing.items():
        yield Source(name, "unavailable", why, tuple(sorted(filter(None, lacking))))

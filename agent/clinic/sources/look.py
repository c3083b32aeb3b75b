"""Everything that this pod can say of a run that stands still, read side by side, each with a deadline.

python -m agent.clinic.sources.look QUESTION prints it as a line of JSON, a LookAnswer. Threads that hang in the
kernel may keep that process from ending: whoever asked takes the line, and waits no longer.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

from agent import wire
from agent.clinic.sources.asking import ALL_SHARE, Asking, needs_native
from agent.clinic.sources.left import dumps_in, noted_ranks, started_ranks, torch_release
from agent.clinic.sources.nccl_ras import DEFAULT_ADDRESS
from agent.clinic.sources.py_spy import NO_PY_SPY
from agent.clinic.sources.question import LookAnswer, Question
from agent.clinic.sources.roles import Role, SeenProcess, roles
from agent.clinic.why.records import PodRecords, Process, Source, Thread, Waiting
from agent.machine.evidence import processes_of
from agent.machine.evidence_text import ProcessSeen, render
from agent.machine.process import find_program
from agent.machine.workers import in_time

PROCESSES_SHARE = 0.3
"""Part of the time after which /proc must have been read."""
MOST_AT_ONCE = 32
OWN_THREADS = "pt_workerserver"
"""Name of the threads of torch's server, which is there because of us."""
NO_SOCKET = "no socket in {}: torch older than 2.10 or none, a Python that reads no PYTHONPATH (-I, -E, -S)"
NO_SERVER = "torch {}.{} has no server in ranks that could be asked: the first is torch 2.10"
SERVED_SINCE = (2, 10)


def look(question: Question) -> LookAnswer:
    """Never takes much longer than `question.seconds`."""
    asking = Asking(question.why_dir, question.seconds, question.pod.hosts)
    processes, notes = processes_of(question.marks, asking.until(PROCESSES_SHARE))
    noted = _known_ranks(question)
    facts = [SeenProcess(one.pid, one.ppid, one.rank, one.program, one.is_ours) for one in processes]
    role = roles(facts, noted)
    jobs = list(_jobs(question, processes, role, asking))
    in_time(jobs, MOST_AT_ONCE, asking.until(ALL_SHARE))
    records = _records(question, processes, role, noted, asking)
    run = question.marks.run
    title = f"processes of {run}" if processes else f"{run} has no processes"
    text, summary = render(title, [_described(one, asking) for one in processes], notes)
    return LookAnswer(records, text, summary)


def _known_ranks(question: Question) -> dict[int, int]:
    """Process → rank: the hook's notes, else what mpirun started, which may be a shell that starts the rank."""
    noted = noted_ranks(question.why_dir)
    started = started_ranks(question.ranks_dir)
    return {pid: rank for pid, rank in started.items() if rank not in noted.values()} | noted


def _described(process: ProcessSeen, asking: Asking) -> ProcessSeen:
    """With its stacks, for people."""
    why = [why for (source, why), pids in asking.missing.items() if source == "stacks" and process.pid in pids]
    dump = "\n".join(line for thread in asking.threads.get(process.pid, ()) for line in _lines(thread))
    return replace(process, dump=dump, no_dump=" ".join(why))


def _lines(thread: Thread) -> Iterable[str]:
    gil = ", holds the GIL" if thread.holds_gil else ""
    yield f'Thread {thread.tid or "?"}{gil}: "{thread.name}"'
    for frame in [frame for frame in thread.frames if not frame.is_native] or thread.frames:
        place = os.path.basename(frame.file) + ("" if frame.is_native else f":{frame.line}")
        arguments = "".join(f", {name}={value}" for name, value in frame.arguments.items())
        yield f"    {frame.function} ({place}{arguments})"


def _jobs(
    question: Question, processes: Iterable[ProcessSeen], role: Mapping[int, Role], asking: Asking
) -> Iterable[Callable[[], None]]:
    """The longest first."""
    spy = find_program("py-spy", os.pathsep.join([question.path, os.path.dirname(sys.executable)]))
    sockets = {one.pid: f"{question.why_dir}/{one.pid}.sock" for one in processes}
    sockets = {pid: path for pid, path in sockets.items() if os.path.exists(path)}
    ranks = [one for one in processes if role[one.pid] == "rank"]
    addresses = sorted({one.ras or DEFAULT_ADDRESS for one in ranks}) if question.prepared else []
    for name in dumps_in(question.why_dir):
        yield partial(asking.take_dump, name)
    if addresses:
        yield partial(asking.ask_ras_twice, addresses[0], addresses[0] == question.ras)
    for one in ranks:
        if one.pid in sockets:
            yield partial(asking.ask_recorder, one.pid, sockets[one.pid])
        else:
            asking.lacks("recorder", _why_no_socket(question), one.pid)
    python = [one for one in processes if one.is_python and not one.is_ours and role[one.pid] != "launcher"]
    if not spy:
        for one in python:
            asking.lacks("stacks", NO_PY_SPY, one.pid)
        return
    for one in python:
        yield partial(asking.take_stacks, spy, one, sockets.get(one.pid, ""))
    for one in python:
        if role[one.pid] == "rank" and needs_native(one, sockets.get(one.pid, "")):
            yield partial(asking.take_stacks_again, spy, one.pid)


def _why_no_socket(question: Question) -> str:
    if not question.prepared:
        return "A4_WHY=false"
    release = torch_release(question.why_dir)
    if release and release < SERVED_SINCE:
        return NO_SERVER.format(*release)
    return NO_SOCKET.format(question.why_dir)


def _records(
    question: Question,
    processes: Iterable[ProcessSeen],
    role: Mapping[int, Role],
    noted: Mapping[int, int],
    asking: Asking,
) -> PodRecords:
    found = [_process(one, role[one.pid], asking) for one in processes]
    alive = {one.rank for one in found if one.role == "rank"}
    gone = {pid: rank for pid, rank in noted.items() if rank not in alive}
    ended = {one.pid for one in processes if one.state == "Z"}
    lost = [
        Process(pid, 0, "gone", "rank", rank, groups=asking.dumps.get(rank, ()))
        for pid, rank in sorted(gone.items())
        if pid in ended or not os.path.exists(f"/proc/{pid}")
    ]
    sources = tuple(_sources(asking, tuple(one.pid for one in lost if one.groups)))
    return question.pod._replace(processes=(*found, *lost), ras=asking.ras, sources=sources)


def _process(process: ProcessSeen, role: Role, asking: Asking) -> Process:
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
        threads=asking.threads.get(pid, ()),
        holds_gil=asking.gil.get(pid),
        groups=asking.groups.get(pid, ()),
        stays=asking.stays.get(pid),
    )


def _sources(asking: Asking, with_dump: tuple[int, ...]) -> Iterable[Source]:
    if with_dump:
        yield Source("dump", "found", pids=with_dump)
    for (name, why), lacking in asking.missing.items():
        yield Source(name, "unavailable", why, tuple(sorted(filter(None, lacking))))


if __name__ == "__main__":
    seen = look(wire.from_json(Question, json.loads(sys.argv[1])))
    print(json.dumps(wire.to_json(seen), separators=(",", ":")), flush=True)
    os.close(1)
    os._exit(0)

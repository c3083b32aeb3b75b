"""Everything that this pod can say of a run that stands still, read side by side, each with a deadline."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from agent.decide.diagnosis import SourceName
from agent.health.why import ras as ras_of
from agent.health.why import recorder
from agent.health.why.ras import read_ras
from agent.health.why.records import PodRecords, Process, Progress, Ras, Source, Thread, Waiting
from agent.health.why.roles import Role, SeenProcess, roles
from agent.health.why.stacks import read_py_spy, read_traceback
from agent.lifecycle.looking.left import dumps_in, noted_ranks, read_dump_of, started_ranks
from agent.lifecycle.looking.question import APART_SECONDS, LookAnswer, Question
from agent.machine.api import RunMarks
from agent.machine.evidence import processes_of
from agent.machine.evidence_text import ProcessSeen, render
from agent.machine.health.nccl_ras import DEFAULT_ADDRESS, ask_ras
from agent.machine.health.stacks import NO_PY_SPY, dump_json
from agent.machine.health.torch_server import RECORDERS, NoAnswer, ask_rank
from agent.machine.process import find_program
from agent.machine.workers import in_time

PROCESSES_SHARE, ALL_SHARE = 0.3, 0.9
"""Parts of the time after which /proc, and everything, must have been read."""
ANSWER_SHARE, DUMP_SHARE = 0.3, 0.45
"""Parts of the time that one rank's server, and one process's stacks, may take."""
TRACEBACK_SHARE = 0.15
"""Part of the time after which a rank that gave no traceback does not let its GIL go."""
MOST_AT_ONCE = 32
WORLD = "0"
"""Name of the group of all ranks."""
OWN_THREADS = "pt_workerserver"
"""Name of the threads of torch's server, which is there because of us."""
MOST_DUMPS = 8
MOST_PROGRAM = 160
NO_SOCKET = "no socket in {}: torch older than 2.9 or none, a Python that reads no PYTHONPATH (-I, -E, -S)"


class Answers:
    """What came, by process; filled by threads."""

    def __init__(self) -> None:
        self.groups: dict[int, tuple[Progress, ...]] = {}
        self.threads: dict[int, tuple[Thread, ...]] = {}
        self.gil: dict[int, bool] = {}
        self.missing: dict[tuple[SourceName, str], list[int]] = {}
        """(source, why) → processes."""
        self.ras: Ras | None = None
        self.dumps: dict[int, tuple[Progress, ...]] = {}
        """By rank: what torch's watchdog wrote before it ended it."""
        self._lock = threading.Lock()

    def lacks(self, source: SourceName, why: str, pid: int) -> None:
        with self._lock:
            self.missing.setdefault((source, why), []).append(pid)


class Times(NamedTuple):
    """When parts of a look must be over."""

    began: float
    seconds: float

    def until(self, share: float) -> float:
        return self.began + self.seconds * share

    def left(self, share: float) -> float:
        return max(0.1, self.until(share) - time.monotonic())


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
    records = records._replace(seconds=round(time.monotonic() - times.began, 3))
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
        yield partial(_read_dump, question.why_dir, name, answers)
    if addresses:
        yield partial(_ask_ras, addresses[0], answers, times)
    for one in ranks:
        path = f"{question.why_dir}/{one.pid}.sock"
        if os.path.exists(path):
            yield partial(_ask_recorder, one.pid, path, question.why_dir, answers, times)
        elif question.prepared:
            answers.lacks("recorder", NO_SOCKET.format(question.why_dir), one.pid)
        else:
            answers.lacks("recorder", "A4_WHY=false", one.pid)
    for one in processes:
        if one.is_python and not one.is_ours and role[one.pid] != "launcher":
            if spy:
                path = f"{question.why_dir}/{one.pid}.sock"
                yield partial(_dump, spy, one, path if os.path.exists(path) else "", answers, times, dumps)
            else:
                answers.lacks("stacks", NO_PY_SPY, one.pid)


def _read_dump(directory: str, name: str, answers: Answers) -> None:
    rank, found = read_dump_of(directory, name)
    if found.groups:
        answers.dumps[rank] = found.groups
    else:
        answers.lacks("dump", f"{name}: {found.why}", 0)


def _ask_recorder(pid: int, path: str, directory: str, answers: Answers, times: Times) -> None:
    """Twice, to see whether the numbers move."""
    try:
        first = _recorded(path, pid, directory, times)
        wait = threading.Event()
        wait.wait(min(APART_SECONDS, times.left(ALL_SHARE) / 3))
        second = _recorded(path, pid, directory, times)
    except NoAnswer as error:
        answers.lacks("recorder", str(error), pid)
        return
    groups = recorder.since(second.groups, first.groups)
    if any(not group.ranks and group.group != WORLD for group in groups):
        ranks = _ranks_of_groups(path, times)
        groups = tuple(group._replace(ranks=group.ranks or ranks.get(group.group, ())) for group in groups)
    answers.groups[pid] = groups
    if not second.groups:
        answers.lacks("recorder", second.why, pid)


def _ranks_of_groups(path: str, times: Times) -> dict[str, tuple[int, ...]]:
    """By the hook's own handler. It needs the GIL: where that is held, others of the group answer."""
    try:
        told = json.loads(ask_rank(path, "a4_groups", min(times.seconds * TRACEBACK_SHARE, times.left(ALL_SHARE))))
        return {str(name): tuple(map(int, ranks)) for name, ranks in told.items()}
    except (NoAnswer, ValueError, AttributeError, TypeError):
        return {}


def _recorded(path: str, pid: int, directory: str, times: Times) -> recorder.Recorded:
    found = recorder.Recorded((), "")
    for backend, handler in RECORDERS.items():
        try:
            raw = ask_rank(path, handler, min(times.seconds * ANSWER_SHARE, times.left(ALL_SHARE)))
        except NoAnswer as error:
            if "HTTP" in str(error) and backend == "nccl":
                continue  # a torch without NCCL
            raise
        _keep(f"{directory}/{pid}.{backend}.json", raw)
        found = recorder.both(found, recorder.read_recorder(raw))
    return found


def _keep(path: str, raw: bytes) -> None:
    """What was answered, for who wants to know more. A full disk costs only this."""
    with suppress(OSError), open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(raw)


def _dump(
    spy: str, process: ProcessSeen, path: str, answers: Answers, times: Times, dumps: threading.Semaphore
) -> None:
    pid = process.pid
    # Where torch records nothing, as in a rank of MPI, only native frames say what it waits in.
    native = process.rank is not None and not path and process.state in "RS"
    with dumps:
        raw = _stacks(spy, pid, answers, times, native=native)
    threads = read_py_spy(raw)
    if threads:
        answers.threads[pid] = threads
    stopped = process.state in "Tt"
    if path and not stopped and (not threads or any(thread.holds_gil for thread in threads)):
        _ask_traceback(pid, path, answers, times)


def _stacks(spy: str, pid: int, answers: Answers, times: Times, *, native: bool) -> str:
    try:
        return dump_json(spy, pid, min(times.seconds * DUMP_SHARE, times.left(ALL_SHARE)), native=native)
    except NoAnswer as error:
        if native:
            return _stacks(spy, pid, answers, times, native=False)
        answers.lacks("stacks", str(error), pid)
        return ""


def _ask_traceback(pid: int, path: str, answers: Answers, times: Times) -> None:
    """A rank whose server answers, but not with what needs the GIL, has a thread that does not let it go."""
    try:
        raw = ask_rank(path, "dump_traceback", min(times.seconds * TRACEBACK_SHARE, times.left(ALL_SHARE)))
    except NoAnswer as error:
        answers.gil[pid] = "within" in str(error)
        return
    answers.gil[pid] = False
    answers.threads.setdefault(pid, read_traceback(raw.decode(errors="replace")))


def _ask_ras(address: str, answers: Answers, times: Times) -> None:
    """Twice: with a stopped process the first question gets no answer, and one answer says not what moves."""
    found: list[Ras] = []
    why = ""
    for _ in range(2):
        try:
            read = read_ras(ask_ras(address, min(times.seconds * DUMP_SHARE, times.left(ALL_SHARE))))
        except NoAnswer as error:
            why = why or str(error)
            if "refused" in why:
                break
            continue
        if read.ras is None:
            why = why or read.why
        else:
            found.append(read.ras)
            threading.Event().wait(min(APART_SECONDS, times.left(ALL_SHARE) / 3))
    if found:
        answers.ras = ras_of.since(found[-1], found[0]) if len(found) > 1 else found[0]
    else:
        answers.lacks("ras", f"nobody answers at {address}: {why}", 0)


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
        program=process.program[:MOST_PROGRAM],
        waiting=tuple(
            Waiting(one.tid, one.state, one.wchan, one.syscall, one.file)  # type: ignore[arg-type]
            for one in process.threads
            if one.name != OWN_THREADS
        ),
        threads=answers.threads.get(pid, ()),
        holds_gil=answers.gil.get(pid),
        groups=answers.groups.get(pid, ()),
        is_python=process.is_python,
    )


def _sources(answers: Answers, with_dump: tuple[int, ...]) -> Iterable[Source]:
    yield Source("processes", "found")
    if pids := tuple(answers.groups):
        yield Source("recorder", "found", pids=pids)
    if pids := tuple(answers.threads):
        yield Source("stacks", "found", pids=pids)
    if answers.ras is not None:
        yield Source("ras", "found")
    if with_dump:
        yield Source("dump", "found", pids=with_dump)
    for (name, why), lacking in answers.missing.items():
        yield Source(name, "unavailable", why, tuple(sorted(filter(None, lacking))))

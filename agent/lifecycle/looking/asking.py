"""Asks each source for what it knows; what comes, or why nothing does, is put into Answers."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress

from agent.health.why import ras as ras_of
from agent.health.why import recorder
from agent.health.why.ras import read_ras
from agent.health.why.records import Ras
from agent.health.why.stacks import read_py_spy, read_traceback
from agent.lifecycle.looking.answers import ALL_SHARE, Answers, Times
from agent.lifecycle.looking.left import read_dump_of
from agent.lifecycle.looking.question import APART_SECONDS
from agent.machine.evidence_text import ProcessSeen
from agent.machine.health.nccl_ras import ask_ras
from agent.machine.health.stacks import dump_json
from agent.machine.health.torch_server import RECORDERS, NoAnswer, ask_rank

ANSWER_SHARE, DUMP_SHARE = 0.3, 0.45
"""Parts of the time that one rank's server, and one process's stacks, may take."""
TRACEBACK_SHARE = 0.15
"""Part of the time after which a rank that gave no traceback does not let its GIL go."""
WORLD = "0"
"""Name of the group of all ranks."""


def take_dump(directory: str, name: str, answers: Answers) -> None:
    rank, found = read_dump_of(directory, name)
    if found.groups:
        answers.dumps[rank] = found.groups
    else:
        answers.lacks("dump", f"{name}: {found.why}", 0)


def ask_recorder(pid: int, path: str, directory: str, answers: Answers, times: Times) -> None:
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


def take_stacks(
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


def ask_ras_twice(address: str, directory: str, answers: Answers, times: Times) -> None:
    """Twice: with a stopped process the first question gets no answer, and one answer says not what moves."""
    found: list[Ras] = []
    why = ""
    for _ in range(2):
        try:
            text = ask_ras(address, min(times.seconds * DUMP_SHARE, times.left(ALL_SHARE)))
        except NoAnswer as error:
            why = why or str(error)
            if "refused" in why:
                break
            continue
        _keep(f"{directory}/ras.txt", text.encode())
        read = read_ras(text)
        if isinstance(read, str):
            why = why or read
        else:
            found.append(read)
            threading.Event().wait(min(APART_SECONDS, times.left(ALL_SHARE) / 3))
    if found:
        answers.ras = ras_of.since(found[-1], found[0]) if len(found) > 1 else found[0]
    else:
        answers.lacks("ras", f"nobody answers at {address}: {why}", 0)

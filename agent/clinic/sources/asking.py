"""Asks each source what it knows of a run's processes, with a limit for each.

No rank is asked for what needs its GIL: a thread that waits for that aborts a program that is ending.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection
from contextlib import suppress

from agent.clinic.sources import ras as ras_of
from agent.clinic.sources import recorder
from agent.clinic.sources.left import groups_of, read_dump_of, torch_release
from agent.clinic.sources.nccl_ras import ask_ras
from agent.clinic.sources.py_spy import dump_json
from agent.clinic.sources.question import APART_SECONDS
from agent.clinic.sources.ras import read_ras
from agent.clinic.sources.stacks import read_py_spy, same_holder
from agent.clinic.sources.torch_server import HOOKED, NoAnswer, ask_rank, recorders
from agent.clinic.why.places import no_number_tells, stays
from agent.clinic.why.records import GroupProgress, Ras, Thread
from agent.decide.diagnosis import SourceName
from agent.machine.evidence_text import ProcessSeen

ALL_SHARE = 0.9
"""Part of the time after which everything must have been read."""
ANSWER_SHARE, DUMP_SHARE = 0.3, 0.45
"""Parts of the time that one rank's server, and one process's stacks, may take."""
WORLD = "0"
"""Name of the group of all ranks."""
MOST_DUMPS = 8


def needs_native(process: ProcessSeen, path: str) -> bool:
    """Where torch records nothing, as in a rank of MPI, only native frames say what it waits in."""
    return process.rank is not None and not path and process.state in "RS"


class Asking:
    """What came, by process, or why nothing did. Each source is asked in a thread of its own."""

    def __init__(self, directory: str, seconds: float, hosts: Collection[str] = ()) -> None:
        """directory: where ranks leave files, and where their answers are kept. hosts: this pod's addresses."""
        self.groups: dict[int, tuple[GroupProgress, ...]] = {}
        self.threads: dict[int, tuple[Thread, ...]] = {}
        self.gil: dict[int, bool] = {}
        self.stays: dict[int, bool] = {}
        self.missing: dict[tuple[SourceName, str], list[int]] = {}
        """(source, why) → processes."""
        self.ras: Ras | None = None
        self.dumps: dict[int, tuple[GroupProgress, ...]] = {}
        """By rank: what torch's watchdog wrote before it ended it."""
        self._directory = directory
        self._seconds = seconds
        self._hosts = hosts
        self._recorders = recorders(torch_release(directory))
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._first: dict[int, tuple[float, tuple[Thread, ...]]] = {}
        """Native stacks of a first look, and when they were taken."""
        self._looked: dict[int, threading.Event] = {}
        self._dumping = threading.Semaphore(MOST_DUMPS)

    def until(self, share: float) -> float:
        """When that part of the time is over."""
        return self._began + self._seconds * share

    def _left(self) -> float:
        return max(0.1, self.until(ALL_SHARE) - time.monotonic())

    def _at_most(self, share: float) -> float:
        return min(self._seconds * share, self._left())

    def _wait_between_looks(self) -> None:
        threading.Event().wait(min(APART_SECONDS, self._left() / 3))

    def lacks(self, source: SourceName, why: str, pid: int) -> None:
        with self._lock:
            self.missing.setdefault((source, why), []).append(pid)

    def take_dump(self, name: str) -> None:
        rank, found = read_dump_of(self._directory, name)
        if found.groups:
            self.dumps[rank] = found.groups
        else:
            self.lacks("dump", f"{name}: {found.why}", 0)

    def ask_recorder(self, pid: int, path: str) -> None:
        """Twice, to see whether the numbers move."""
        try:
            first = self._recorded(path, pid)
            self._wait_between_looks()
            second = self._recorded(path, pid)
            if HOOKED.keys() & self._recorders.keys() and recorder.only_ended(second.groups, first.groups):
                # nccl2 looks once a second what is over: it may have been over before the first look.
                self._wait_between_looks()
                first, second = second, self._recorded(path, pid)
        except NoAnswer as error:
            self.lacks("recorder", str(error), pid)
            return
        groups = recorder.since(second.groups, first.groups)
        if any(not group.ranks and group.group != WORLD for group in groups):
            ranks = groups_of(self._directory, pid)
            groups = tuple(group._replace(ranks=group.ranks or ranks.get(group.group, ())) for group in groups)
        self.groups[pid] = groups
        if not second.groups:
            self.lacks("recorder", second.why, pid)

    def _recorded(self, path: str, pid: int) -> recorder.Recorded:
        found = recorder.Recorded((), "")
        made = list(groups_of(self._directory, pid))
        for backend, (handler, query) in self._recorders.items():
            try:
                raw = ask_rank(path, handler, self._at_most(ANSWER_SHARE), query)
            except NoAnswer as error:
                if "HTTP" in str(error) and backend != "gloo":
                    continue  # a torch without NCCL
                raise
            self._keep(f"{pid}.{backend}.json", raw)
            read = recorder.read_hooked(raw, made) if backend in HOOKED else recorder.read_recorder(raw)
            found = recorder.both(found, read)
        return found

    def _keep(self, name: str, raw: bytes) -> None:
        """What was answered, for who wants to know more. A full disk costs only this."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with suppress(OSError), open(os.open(f"{self._directory}/{name}", flags, 0o600), "wb") as file:
            file.write(raw)

    def take_stacks(self, spy: str, process: ProcessSeen, path: str) -> None:
        pid = process.pid
        threads = self._native_threads(spy, pid) if needs_native(process, path) else ()
        if threads:
            self._first[pid] = (time.monotonic(), threads)
        else:
            threads = self._threads(spy, pid)
        if threads:
            self.threads[pid] = threads
        self._has_looked(pid).set()
        if path and process.state not in "Tt" and threads:
            self._look_again(spy, pid, threads)

    def _look_again(self, spy: str, pid: int, first: tuple[Thread, ...]) -> None:
        """Where one look does not tell whether a rank of torch stays where it is."""
        has_gil = any(thread.holds_gil for thread in first)
        if not has_gil and not no_number_tells(first):
            return
        self._wait_between_looks()
        second = self._threads(spy, pid)
        if has_gil:  # whoever had it at one moment may have let it go in the next
            self.gil[pid] = same_holder(first, second)
        self.stays[pid] = stays(first, second)

    def take_stacks_again(self, spy: str, pid: int) -> None:
        """Where there are native frames: no number says whether the rank goes on."""
        self._has_looked(pid).wait(self._left())
        if pid not in self._first:
            return
        at, first = self._first[pid]
        threading.Event().wait(min(max(0.0, at + APART_SECONDS - time.monotonic()), self._left()))
        if second := self._native_threads(spy, pid):
            self.stays[pid] = stays(first, second)

    def _has_looked(self, pid: int) -> threading.Event:
        return self._looked.setdefault(pid, threading.Event())

    def _native_threads(self, spy: str, pid: int) -> tuple[Thread, ...]:
        try:
            with self._dumping:
                return read_py_spy(dump_json(spy, pid, self._at_most(DUMP_SHARE), native=True))
        except NoAnswer:
            return ()

    def _threads(self, spy: str, pid: int) -> tuple[Thread, ...]:
        try:
            with self._dumping:
                return read_py_spy(dump_json(spy, pid, self._at_most(DUMP_SHARE)))
        except NoAnswer as error:
            self.lacks("stacks", str(error), pid)
            return ()

    def ask_ras_twice(self, address: str, is_of_run: bool) -> None:
        """Twice: with a stopped process the first question gets no answer, and one answer says not what moves."""
        found: list[Ras] = []
        why = ""
        for _ in range(2):
            try:
                text = ask_ras(address, self._at_most(DUMP_SHARE))
            except NoAnswer as error:
                why = why or str(error)
                if "refused" in why:
                    break
                continue
            self._keep("ras.txt", text.encode())
            read = read_ras(text, self._hosts)
            if isinstance(read, str):
                why = why or read
            else:
                found.append(read)
                self._wait_between_looks()
        if found:
            ras = ras_of.since(found[-1], found[0]) if len(found) > 1 else found[0]
            self.ras = ras._replace(is_of_run=is_of_run)
        else:
            self.lacks("ras", f"nobody answers at {address}: {why}", 0)

"""What this pod keeps of its runs: the log of the one that goes on, and the archives that are still being stored."""

from __future__ import annotations

import posixpath
from collections import deque
from collections.abc import Callable

from agent.errors import SystemFault
from agent.lifecycle.keeping.archive import Archive, PodLog
from agent.lifecycle.keeping.making_room import make_room
from agent.log import Log
from agent.machine.api import AGENT, KeeperProcess, Machine, Spool
from agent.paths import POD_LOG, POD_LOGS, RunDir
from agent.settings import BUCKET, Settings

EARLY_LINES = 2000
"""Lines of the agent's log that are kept for the log of the next run."""
FORMING = "forming"
"""Name of the spool of a job that came to no run."""
NONCE_CHARACTERS = 8
"""In the name of a log beside an earlier one."""
MOST_UNSTORED = 10
"""Runs that may wait for a results directory that takes nothing; then the oldest is given up."""


class RunLogs:
    """One at a time gets the agent's lines and what the exclusive run prints; earlier ones may still be storing."""

    def __init__(self, machine: Machine, log: Log, settings: Settings) -> None:
        self._machine = machine
        self._log = log
        self._settings = settings
        self._dir = RunDir(settings.run_dir)
        self._open: dict[str, Archive] = {}
        """By the run, and by the path of a file elsewhere."""
        self._hanging: set[KeeperProcess] = set()
        self._current: Archive | None = None
        """That of the exclusive run that goes on, or was the last."""
        self.spool: Spool | None = None
        """Where the output of that run goes."""
        self._log_names: dict[str, str] = {}
        """What this pod's log of the run that goes on, or was the last, is called, where that is not `log_name`."""
        self._top = ""
        """The run whose results are the job's own."""
        self.place = settings.results_dir
        """Where results of the job's first run are."""
        self.has_earlier = False
        """Logs are there, or may be: this attempt was started before, as when Kueue admits a job again."""
        self._begun = False
        """Some run has been there, so what was said has a place."""
        self._early: deque[bytes] = deque(maxlen=EARLY_LINES)
        log.tee = self._logged

    @property
    def log_name(self) -> str:
        """Name of this pod's log among the results."""
        return "coordinator" if self._settings.is_coordinator else f"worker-{self._settings.index}"

    def directory(self, run_id: str, *, top: bool) -> str:
        """The directory of a run's results: the job's own (`top`), or one below it."""
        return self._settings.results_dir if top else f"{self._settings.results_dir}/runs/{run_id}"

    def stored(self, run_id: str, name: str) -> str:
        """Path of a file among the results of a run, by the name that commands have for it."""
        own_log = f"{POD_LOGS}/{self._log_names.get(run_id) or self.log_name}.log"
        return f"{self.directory(run_id, top=run_id == self._top)}/{own_log if name == POD_LOG else name}"

    @property
    def base(self) -> str:
        """The beginning of the results directory that somebody named: by default the bucket's mount point, below which
        others may write."""
        settings = self._settings
        derived = not settings.results_explicit and settings.results_dir.startswith(f"{BUCKET}/")
        return BUCKET if derived else settings.results_dir

    @property
    def outlive_the_pod(self) -> bool:
        """Whether the results directory is no part of the pod's private state."""
        return not self._settings.results_dir.startswith(f"{self._dir.path}/")

    def unstored(self) -> set[str]:
        """Runs whose spools are still needed."""
        return {name for name, archive in self._open.items() if not archive.over}

    # The one that goes on

    def begin(self, run_id: str, *, top: bool, log_name: str = "") -> None:
        """From now on the agent's lines, and what an exclusive run prints here, are kept for its results."""
        self.end()
        self._top = run_id if top else self._top
        self._log_names = {run_id: log_name} if log_name else {}
        directory = self.directory(run_id, top=top)
        if not self._begun:
            self.place, self._begun = directory, True
        self.spool = self.open_spool(run_id)
        pod_log = None
        if self.spool is not None:
            pod_log = PodLog(self.spool, self._dir.spool(run_id), f"{POD_LOGS}/{log_name or self.log_name}.log")
            while self._early:
                self.spool.append(AGENT, self._early.popleft())
        self._current = self._archive(run_id, directory, self.base, pod_log)
        unstored = [archive for archive in self._open.values() if not archive.over]
        for archive in unstored[:-MOST_UNSTORED]:
            archive.close(0.0, lambda: None)
        if not self.outlive_the_pod:
            make_room(self._machine, self._log, self._settings, self.unstored())

    def _archive(self, name: str, directory: str, base: str, pod_log: PodLog | None = None) -> Archive:
        self._open = {other: archive for other, archive in self._open.items() if not archive.over}
        archive = self._open[name] = Archive(self._machine, self._log, directory, self._hanging, pod_log, base=base)
        return archive

    def begin_without_run(self) -> None:
        """A results directory that outlives the pod gets the log even of a job that came to no run."""
        if not self._begun and self.outlive_the_pod:
            again = f"{self.log_name}-{self._machine.draw_nonce()[:NONCE_CHARACTERS]}" if self.has_earlier else ""
            self.begin(FORMING, top=True, log_name=again)

    def open_spool(self, run_id: str) -> Spool | None:
        """None when the disk refuses: a run does not fail for that."""
        try:
            self._machine.make_private_dir(self._dir.run(run_id))
            return self._machine.spool(self._dir.spool(run_id), self._settings.log_limit_mb << 20)
        except (OSError, SystemFault) as error:
            self._log.warning(f"the output of {run_id} cannot be kept in this pod: {error}")
            return None

    def keep(self, name: str, text: str) -> None:
        """Store a file among the results."""
        if self._current is not None:
            self._current.keep(name, text)

    def keep_elsewhere(self, path: str, text: str, seconds: float, *, new: bool) -> None:
        """Store a file of the user's within that time; `new`: not over one that has another text."""
        directory = posixpath.dirname(path)
        archive = self._archive(path, directory, directory)
        archive.keep(posixpath.basename(path), text, new=new)
        archive.close(seconds, lambda: None)

    def expect(self, name: str, give_up: Callable[[], None]) -> Callable[[str | None], None]:
        """A file among the results that is still being made (see Archive.expect)."""
        if self._current is None:
            return lambda text: None
        return self._current.expect(name, give_up)

    def when_made(self, run_id: str, name: str, action: Callable[[], None]) -> None:
        """Call `action` when that file among the run's results is made or given up; at once if nobody makes it."""
        if run_id in self._open:
            self._open[run_id].when_made(name, action)
        else:
            action()

    def print(self, text: str) -> None:
        """A table for people: on this pod's stdout and in its log."""
        data = self._log.masked(text).encode(errors="backslashreplace")
        self._machine.emit(1, data)
        if self.spool is not None:
            self.spool.append(AGENT, data)

    def _logged(self, line: str) -> None:
        data = line.encode(errors="surrogateescape")
        if self.spool is not None and self._current is not None and not self._current.log_ends:
            self.spool.append(AGENT, data)
        else:
            self._early.append(data)

    # Ends

    def when_kept(self, seconds: float, done: Callable[[str], None]) -> None:
        """Call `done` when the files of the run and those elsewhere are stored, cannot be, or `seconds` are over.

        It gets which are missing and why; empty when none is.
        """
        left = [a for name, a in self._open.items() if not a.over and (a is self._current or name.startswith("/"))]
        told: list[str] = []

        def one_kept(missing: str) -> None:
            told.append(missing)
            if len(told) == len(left):
                done(", ".join(filter(None, told)))

        for archive in left:
            archive.when_kept(one_kept, seconds)
        if not left:
            done("")

    def end(self) -> None:
        """The run is over: the rest is stored while other things go on."""
        if self._current is not None:
            self._current.close(None, lambda: None)

    def close(self, seconds: float, closed: Callable[[], None]) -> None:
        """Store all that is not stored yet; `closed` when that is done, or when `seconds` are over.

        A second call sets another limit, and its `closed` is the one that hears.
        """
        left = [archive for archive in self._open.values() if not archive.over]

        def one_closed() -> None:
            if all(archive.over for archive in left):
                closed()

        for archive in left:
            archive.close(seconds, one_closed)
        if not left:
            closed()

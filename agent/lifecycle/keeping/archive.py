"""What one run leaves in a directory that may hang: files, and this pod's log. A process of its own stores them.

The directory is often a bucket, or on a server, and whoever touches it when that is gone waits in the kernel, where no
signal is taken. So the agent never touches it: it talks to a process, and judges that by its silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from agent.lifecycle.keeping.storing import Storing
from agent.log import Log
from agent.machine.api import SERVER_SECONDS, KeeperProcess, Machine, Spool

SKIPPED = 100
"""A process begins with the next multiple of it: the one before may have begun pieces of which nobody heard."""


class PodLog(NamedTuple):
    """A spool, its directory, and the name that its text gets."""

    spool: Spool
    path: str
    name: str


class Failure(NamedTuple):
    """Why something could not be stored."""

    why: str = ""
    lasts: bool = False
    """Waiting will not help."""


NO_FAILURE = Failure()
LOG = ""
"""Stands for the log among the names of files."""


class Archive:
    """Knows what is stored and what is not, and who waits for it."""

    def __init__(
        self,
        machine: Machine,
        log: Log,
        directory: str,
        hanging: set[KeeperProcess],
        pod_log: PodLog | None = None,
        *,
        base: str = "",
        patience: float = SERVER_SECONDS,
    ) -> None:
        """See Storing for `hanging`, `base` and `patience`."""
        self.directory = directory
        self.over = False
        self.log_ends = False
        """What is said from here on is no part of the stored log."""
        self._machine = machine
        self._log = log
        self._pod_log = pod_log
        self._pieces = self._stored = self._gone = 0
        """Pieces of the log, how far they go, and bytes of that which the spool no longer had."""
        self._is_whole = pod_log is None
        """The log is one file."""
        self._count = 0
        """Numbers commands: an answer to an older text of the same name must not count for the newer one."""
        self._files: dict[str, tuple[str, ...]] = {}
        """Files that are not stored: name → command."""
        self._expected: dict[str, Callable[[], None]] = {}
        """Files that are still being made: name → how to give that up."""
        self._readers: dict[str, list[Callable[[], None]]] = {}
        """Who waits for a file that is still being made, by its name."""
        self._missing = ""
        """What was last said to be missing."""
        self._failures: dict[str, Failure] = {}
        """Name of a file, or LOG → how the last try to store it ended."""
        self._failure = NO_FAILURE
        """Why nothing at all can be stored at present."""
        self._log_fails = False
        self._waiting: list[Callable[[str], None]] = []
        self._has_limit = False
        """It was closed with a limit: nobody waits longer for what will not get better."""
        self._closed: Callable[[], None] = lambda: None
        self._process = Storing(machine, self, directory, hanging, base=base, patience=patience)

    # What is to be stored

    def keep(self, name: str, text: str, *, new: bool = False) -> None:
        """Store a file, now or as soon as that is possible; `new`: not over one that has another text."""
        self._count += 1
        self._files[name] = ("write", str(self._count), name, text, "new" if new else "")
        self._failures.pop(name, None)
        self._process.send(*self._files[name])

    def expect(self, name: str, give_up: Callable[[], None]) -> Callable[[str | None], None]:
        """A file that is still being made; `close` waits for it, or calls `give_up` when its time is up.

        Give its text to what is returned, or None when there will be none.
        """
        self._expected[name] = give_up

        def made(text: str | None) -> None:
            self._expected.pop(name, None)
            if text is not None and not self.over:
                self.keep(name, text)
            self._settle()
            for action in self._readers.pop(name, ()):
                action()

        return made

    def when_made(self, name: str, action: Callable[[], None]) -> None:
        """Call `action` when that file is made or given up; at once if nobody makes it."""
        if name in self._expected:
            self._readers.setdefault(name, []).append(action)
        else:
            action()

    def when_kept(self, done: Callable[[str], None], seconds: float | None = None) -> None:
        """Call `done` when all files so far are stored, cannot be, or `seconds` are over.

        It gets which are missing and why, also of the log; empty for none. This is logged before.
        """
        if self.over:
            done(self._missing)
            return
        self._waiting.append(done)
        if seconds is not None:
            self._machine.later(seconds, lambda: self._tell_waiting() if done in self._waiting else None)
        self._settle()

    def close(self, seconds: float | None, closed: Callable[[], None]) -> None:
        """Store the rest; `closed` when that is done or `seconds` are over (None: no limit). What is lost is logged.

        A second call sets another limit, and its `closed` is the one that hears.
        """
        if self.over:
            closed()
            return
        self._closed = closed
        if seconds is not None:
            self._has_limit = True
            self._machine.later(seconds, self._end)
        self.when_kept(self._end_log)

    # How that goes

    def _settle(self) -> None:
        """See whether there is nothing more to wait for."""
        if self.over:
            return
        # True as well when no file is left.
        lasting = all(self._of(name).lasts for name in self._files)
        if lasting:
            self._tell_waiting()
        files_are_over = not self._files or (lasting and self._has_limit)
        log_is_over = self._is_whole or (self._of(LOG).lasts and self._has_limit)
        if self.log_ends and log_is_over and files_are_over and not self._expected:
            self._end()

    def _tell_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._say_what_is_missing(self._files)
        missing = self._listed([*self._files, LOG] if self._log_lacks_something() else self._files)
        for tell in waiting:
            tell(missing)

    def _say_what_is_missing(self, names: Iterable[str]) -> None:
        """If that is new."""
        missing = self._listed(names)
        if missing and missing != self._missing:
            self._missing = missing
            self._log.error(f"not stored in {self.directory}: {missing}")

    def _listed(self, names: Iterable[str]) -> str:
        """In words, each reason once."""
        by_reason: dict[str, list[str]] = {}
        for name in names:
            why = self._of(name).why or "it has not answered in time"
            by_reason.setdefault(why, []).append(name or self._log_name())
        return ", ".join(f"{', '.join(sorted(of_it))} ({why})" for why, of_it in sorted(by_reason.items()))

    def _log_lacks_something(self) -> bool:
        return self._log_fails and self._log_end() > self._stored

    def _log_name(self) -> str:
        name = self._pod_log.name if self._pod_log is not None else ""
        return f"the rest of {name}" if self._stored else name

    def _end_log(self, missing: str) -> None:
        self.log_ends = True
        # All is tried again now.
        self._failure = self._failure._replace(lasts=False)
        self._failures = {name: one._replace(lasts=False) for name, one in self._failures.items()}
        self._process.send("end", str(self._log_end()))
        self._settle()

    def _log_end(self) -> int:
        return self._pod_log.spool.end if self._pod_log is not None else 0

    def _end(self) -> None:
        if self.over:
            return
        self._say_what_is_missing({*self._files, *self._expected})
        self._tell_waiting()
        self.over = True
        self._process.close(kill=self.left())
        for give_up in list(self._expected.values()):
            give_up()
        if self._pod_log is not None:
            self._say_what_is_lost(self._pod_log.spool)
            self._pod_log.spool.close()
        self._closed()

    def _say_what_is_lost(self, spool: Spool) -> None:
        # What was said after the end of the whole is no part of it.
        lost = self._gone + spool.lost + (0 if self._is_whole else spool.end - self._stored)
        why = "more was printed than the pod keeps" if self._gone else "the pod's own disk took no more"
        if not self._is_whole:
            why = self._of(LOG).why or "it did not answer in time"
        if lost:
            self._log.warning(f"{lost} bytes of this pod's log could not be stored in {self.directory}: {why}")

    # The process (see Orders)

    def left(self) -> bool:
        return bool(self._files) or not self._is_whole

    def give(self, process: KeeperProcess, number: int) -> None:
        if self._pod_log is not None and not self._is_whole:
            if number > 1:
                self._pieces += SKIPPED - self._pieces % SKIPPED
            known = (str(value) for value in (self._pieces, self._stored, self._gone))
            process.send("log", self._pod_log.path, self._pod_log.name, *known)
        for command in self._files.values():
            process.send(*command)
        if self.log_ends:
            process.send("end", str(self._log_end()))

    def failed(self, why: str, *, lasting: bool) -> None:
        self._failures, self._failure = {}, Failure(why, lasting)
        self._say_of_log(why)
        self._settle()

    def heard(self, words: Sequence[str]) -> None:
        match words:
            case ["write", number, why, lasting]:
                for name in [name for name, command in self._files.items() if command[1] == number]:
                    self._went(name, why, lasting)
            case ["piece", pieces, stored, gone, why, lasting]:
                self._pieces, self._stored, self._gone = int(pieces), int(stored), int(gone)
                self._went(LOG, why, lasting)
            case ["whole", lacks, gone, why, lasting]:
                self._gone, self._is_whole = int(gone), not why
                if int(lacks) and self._stored and not why:
                    self._log.info(
                        "more was printed than this pod keeps: its whole log has the end, its pieces the rest"
                    )
                self._went(LOG, why, lasting)

    def _of(self, name: str) -> Failure:
        return self._failures.get(name, self._failure)

    def _went(self, name: str, why: str, lasting: str) -> None:
        """It was stored, or why not."""
        self._failure = NO_FAILURE
        self._failures[name] = Failure(why, bool(lasting))
        if not why:
            self._process.stored()
            self._files.pop(name, None)
        if name == LOG:
            self._say_of_log(why)
        self._settle()

    def _say_of_log(self, why: str) -> None:
        """When it begins to fail, and when that is over."""
        if self._pod_log is not None and bool(why) != self._log_fails:
            self._log_fails = bool(why)
            if why:
                rest = "it stays in the pod, and is tried again"
                self._log.warning(f"this pod's log cannot be stored in {self.directory}: {why}; {rest}")
            else:
                self._log.info(f"this pod's log is stored in {self.directory} again")

"""What is kept of a run: the spool of what this pod printed, and copies in the results directory."""

from __future__ import annotations

from collections.abc import Callable

from agent.lifecycle.keeping.pod_log import PodLog, PodLogEnd
from agent.log import Log
from agent.machine.api import Machine, Spool

AGAIN_SECONDS = 10.0
"""How long to wait before a file that could not be stored is tried again."""


class Archive:
    """The logs and files of one run on one pod. They are stored beside everything else; only `close` waits for that."""

    def __init__(
        self, machine: Machine, log: Log, run_id: str, directory: str, name: str, spool_dir: str, spool: Spool
    ) -> None:
        self.run_id = run_id
        self._machine = machine
        self._log = log
        self.directory = directory
        self.spool = spool
        self._keeper = machine.keeper(directory)
        self._pod_log = PodLog(machine, log, self._keeper, spool_dir, name, spool, where=directory)
        self._pending: dict[str, str] = {}
        """Files that are not stored yet: name → text."""
        self._expected: dict[str, Callable[[], None]] = {}
        """Files that are still being made: name → how to give that up."""
        self._why = ""
        self._closed: Callable[[], None] | None = None
        self.over = False
        self._pod_log_over = False

    def keep(self, name: str, text: str) -> None:
        """Store a file, now or as soon as that is possible again."""
        self._pending[name] = text
        self._store(name, text)

    def expect(self, name: str, give_up: Callable[[], None]) -> Callable[[str | None], None]:
        """A file that is still being made; `close` waits for it, or calls `give_up` when its time is up.

        Give its text to what is returned, or None when there will be none.
        """
        self._expected[name] = give_up

        def made(text: str | None) -> None:
            self._expected.pop(name, None)
            if text is not None and not self.over:
                self.keep(name, text)
            self._end_if_stored()

        return made

    def _store(self, name: str, text: str) -> None:
        self._keeper.write(name, text, lambda problem: self._stored(name, text, problem))

    def _stored(self, name: str, text: str, problem: str) -> None:
        if self._pending.get(name) != text or self.over:
            return  # a newer text is under way
        if not problem:
            del self._pending[name]
            self._end_if_stored()
            return
        self._why = problem
        self._machine.later(AGAIN_SECONDS, lambda: self._try_again(name, text))

    def _try_again(self, name: str, text: str) -> None:
        if self._pending.get(name) == text and not self.over:
            self._store(name, text)

    def close(self, seconds: float | None, closed: Callable[[], None]) -> None:
        """Store the rest; `closed` when all is stored or `seconds` are over (None: no limit), which is then said."""
        self._closed = closed
        if seconds is not None:
            self._machine.later(seconds, self._time_is_up)
        self._pod_log.finish(seconds, self._logged)

    def hurry(self, seconds: float, closed: Callable[[], None]) -> None:
        """After `close` without a limit: from now on there is one."""
        if self.over:
            closed()
            return
        self._closed = closed
        self._machine.later(seconds, self._time_is_up)
        if not self._pod_log_over:
            self._pod_log.finish(seconds, self._logged)

    def _logged(self, end: PodLogEnd) -> None:
        self._pod_log_over = True
        if end.lost and not self.over:
            self._log.warning(f"{end.lost} bytes of this pod's log could not be stored in {self.directory}: {end.why}")
        self._end_if_stored()

    def _end_if_stored(self) -> None:
        if self._pod_log_over and not self._pending and not self._expected:
            self._end()

    def _time_is_up(self) -> None:
        if self.over:
            return
        if self._pending or self._expected:
            names = ", ".join(sorted({*self._pending, *self._expected}))
            why = self._why or "it has not answered in time"
            self._log.error(f"not stored in {self.directory}: {names} ({why})")
        self._end()

    def _end(self) -> None:
        if self.over:
            return
        self.over = True
        for give_up in list(self._expected.values()):
            give_up()
        self._keeper.close()
        self.spool.close()
        closed, self._closed = self._closed, None
        if closed is not None:
            closed()

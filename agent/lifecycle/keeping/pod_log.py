"""This pod's log in the results directory: closed pieces while the run goes on, the whole at its end.

The spool in the pod is the truth, and nothing waits for the results directory but `finish`. What could not be
stored is in the next piece, as long as the spool has it. A name is never used twice: what a server does late with
a command that was given up harms no other piece; the numbers then have holes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from agent.log import Log
from agent.machine.api import Keeper, Machine, Spool, Timer

PIECE_SECONDS = 30.0
PIECE_BYTES = 8 * 1024 * 1024
LOOK_SECONDS = 2.0
HURRY_SECONDS = 2.0
"""Time between two tries at the end, when time is limited."""
SPARE_SECONDS = 0.2
"""By which `finish` is done before its time is up: who waits as long hears what is lost."""


class PodLogEnd(NamedTuple):
    """What became of the log. Bytes as the spool counts them, with five for each frame."""

    stored: int
    lost: int
    """Bytes that are in no file: not stored in time, dropped by the spool before, or never written to it."""
    why: str
    """Why something is lost, or why the pieces were not made one; empty when nothing is."""


class PodLog:
    """Stores `spool`, which lies in `spool_directory`, as pod-logs/`name`.log; `where` names the place in the log."""

    def __init__(
        self,
        machine: Machine,
        log: Log,
        keeper: Keeper,
        spool_directory: str,
        name: str,
        spool: Spool,
        where: str = "the results directory",
    ) -> None:
        self._machine = machine
        self._log = log
        self._keeper = keeper
        self._directory = spool_directory
        self._spool = spool
        self._where = where
        self._file = f"pod-logs/{name}.log"
        self._stored = 0
        """Offset up to which the spool is in files."""
        self._dropped = 0
        """Bytes that the spool no longer had when their turn came."""
        self._pieces: dict[str, int] = {}
        """Names of the pieces that are stored → their first offset."""
        self._doubtful: list[str] = []
        """Names of pieces that failed: they may turn up all the same."""
        self._number = 0
        self._since = machine.now()
        """When a piece was last begun, or failed."""
        self._busy = False
        self._why = ""
        """Why the last try failed; empty when it did not."""
        self._finishing = False
        self._last_piece_stored = False
        self._whole_stored = False
        self._end: PodLogEnd | None = None
        self._done: Callable[[PodLogEnd], None] = lambda end: None
        self._pause = PIECE_SECONDS
        self._limit: Timer | None = None
        self._retry: Timer | None = None
        machine.later(LOOK_SECONDS, self._look)

    # While the run goes on

    def _look(self) -> None:
        if self._finishing:
            return
        new = self._spool.end - self._stored
        is_time = self._machine.now() - self._since >= PIECE_SECONDS
        if new and not self._busy and (is_time or (new >= PIECE_BYTES and not self._why)):
            self._store_piece()
        self._machine.later(LOOK_SECONDS, self._look)

    def _store_piece(self) -> None:
        self._busy = True
        self._since = self._machine.now()
        self._number += 1
        name = f"{self._file}.{self._number:04d}"
        start, end = self._stored, self._spool.end
        dropped = min(self._gone(start), end - start)

        def done(why: str) -> None:
            if why:
                self._doubtful.append(name)
            else:
                self._pieces[name] = start
                self._stored = end
                self._dropped += dropped
            self._piece_over(why)

        self._keeper.copy_spool(self._directory, start, end, name, done)

    def _gone(self, start: int) -> int:
        """Bytes from `start` on that the spool no longer has."""
        piece = self._machine.read_spool(self._directory, start, 1)
        return piece.skipped if piece is not None else self._spool.end - start

    def _piece_over(self, why: str) -> None:
        if self._end is not None:
            return
        self._busy = False
        self._say(why)
        if why:
            self._since = self._machine.now()
        elif self._doubtful and not self._finishing:
            doubtful, self._doubtful = self._doubtful, []
            self._keeper.remove(doubtful, lambda why: self._doubtful.extend(doubtful if why else []))
        if self._finishing:
            self._last_piece_stored = not why
            self._go_on(why)

    def _say(self, why: str) -> None:
        """What changes is said: once that it fails, once that it does not any more."""
        if why and not self._why:
            self._log.warning(
                f"this pod's log cannot be stored in {self._where}: {why}; it stays in the pod, and is tried again"
            )
        elif self._why and not why:
            self._log.info(f"this pod's log is stored in {self._where} again")
        self._why = why

    # The end

    def finish(self, seconds: float | None, done: Callable[[PodLogEnd], None]) -> None:
        """Store the rest, then the whole, and take the pieces away; `done` within `seconds` (None: without limit).

        A second call sets another limit, and its `done` is the one that hears.
        """
        self._done = done
        if self._end is not None:
            self._machine.later(0.0, self._tell)
            return
        if self._limit is not None:
            self._limit.cancel()
        if seconds is not None:
            self._pause = HURRY_SECONDS
            self._limit = self._machine.later(max(0.0, seconds - SPARE_SECONDS), self._over)
        self._finishing = True
        if not self._busy:
            self._go_on("")

    def _go_on(self, why: str) -> None:
        """The next step; after one that failed, later."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._end is not None:
            return
        if why:
            self._retry = self._machine.later(self._pause, lambda: self._go_on(""))
        elif self._needs_piece():
            self._store_piece()
        else:
            self._store_whole()

    def _needs_piece(self) -> bool:
        """A short log is stored at once as a whole."""
        new = self._spool.end - self._stored
        return not self._last_piece_stored and new > 0 and (self._number > 0 or new > PIECE_BYTES)

    def _store_whole(self) -> None:
        self._busy = True
        end = self._spool.end
        self._keeper.copy_spool(self._directory, 0, end, self._file, lambda why: self._whole_over(end, why))

    def _whole_over(self, end: int, why: str) -> None:
        if self._end is not None:
            return
        self._busy = False
        self._say(why)
        if why:
            self._go_on(why)
            return
        gone = self._gone(0)
        self._dropped += max(0, gone - self._stored)
        self._stored, self._whole_stored = end, True
        kept = [name for name, start in self._pieces.items() if start < gone]
        if kept:
            self._log.info(
                f"more was printed than this pod keeps: {self._file} is its end, {kept[0]} … {kept[-1]} its beginning"
            )
        useless = [*self._doubtful, *(name for name in self._pieces if name not in kept)]
        if useless:
            self._keeper.remove(useless, lambda why: self._over())
        else:
            self._over()

    def _over(self) -> None:
        """Report the end: everything is stored, or time is up."""
        if self._end is not None:
            return
        for timer in (self._limit, self._retry):
            if timer is not None:
                timer.cancel()
        rest = 0 if self._whole_stored else self._spool.end - self._stored  # what came after the whole is no part of it
        lost = rest + self._dropped + self._spool.lost
        self._end = PodLogEnd(self._stored - self._dropped, lost, self._why_lost())
        self._tell()

    def _tell(self) -> None:
        assert self._end is not None
        self._done(self._end)

    def _why_lost(self) -> str:
        if not self._whole_stored:
            return self._why or "it did not answer in time"
        if self._dropped:
            return "more was printed than the pod keeps"
        return "the pod's own disk took no more" if self._spool.lost else ""

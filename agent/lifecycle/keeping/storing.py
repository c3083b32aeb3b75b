"""The process that stores files in a directory that may hang: started when something is to be stored, judged by its
silence, and replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agent.machine.api import KeeperProcess, Machine

FLUSHED_PER_SECOND = 16 * 1024 * 1024
"""A file gets a second more for so many bytes: a bucket takes them when the file is closed."""
REST = 3
"""So many times its patience lie between the start of a process that hung and that of the next."""
MOST_HANGING = 3
"""Processes that may hang at a time, of all directories. Not even SIGKILL ends them, so they must not pile up."""
MOST_ENDS = 3
"""If so many processes end by themselves and have stored nothing, the next one will not do better."""


class Orders(Protocol):
    """What is to be stored, as `Archive` knows it."""

    def left(self) -> bool:
        """Is anything not stored yet?"""

    def give(self, process: KeeperProcess, number: int) -> None:
        """Tell a process, the first has number 1, all that is not done."""

    def heard(self, words: Sequence[str]) -> None:
        """It has said this; of `alive`, nothing is passed on."""

    def failed(self, why: str, *, lasting: bool) -> None:
        """Nothing is stored at present; `lasting`: waiting will not help."""


class Storing:
    """Keeps one process for one directory. See Machine.start_keeper for `base`.

    `hanging` has the processes of all directories that were given up and have not ended: none is started while there
    are MOST_HANGING. One that is silent for `patience` seconds hangs.
    """

    def __init__(
        self,
        machine: Machine,
        orders: Orders,
        directory: str,
        hanging: set[KeeperProcess],
        *,
        base: str,
        patience: float,
    ) -> None:
        self._machine = machine
        self._orders = orders
        self._directory = directory
        self._hanging = hanging
        self._base = base
        self._patience = patience
        self._over = False
        self._process: KeeperProcess | None = None
        self._starts = 0
        self._ends = 0
        """Processes that ended by themselves since something was last stored."""
        self._started = self._silent_at = 0.0
        """When the last process was started, and when the present one counts as hanging unless it says something."""
        # A run may have the pod for itself at first.
        self._start_at = machine.now() + 2.0
        self._look()

    def send(self, *words: str) -> None:
        """Give a command; a process that is started only now gets all that is not done."""
        if self._process is not None:
            self._process.send(*words)
            return
        # Somebody waits for it now; the pause at the beginning is for pods that store nothing yet.
        if not self._starts:
            self._start_at = self._machine.now()
        self._start_if_due()

    def stored(self) -> None:
        """Something was."""
        self._ends = 0

    def close(self, *, kill: bool) -> None:
        """Nothing more is to be stored; without `kill` the process does what it was told."""
        self._over = True
        self._let_go(kill=kill)

    def _look(self) -> None:
        if self._over:
            return
        now = self._machine.now()
        if self._process is None:
            self._start_if_due()
        elif now > self._silent_at:
            self._let_go(kill=True)
            self._start_at = max(now, self._started + REST * self._patience)
            self._orders.failed(f"no answer for {self._patience:g} s", lasting=False)
        self._machine.later(1.0, self._look)

    def _start_if_due(self) -> None:
        is_needed = self._process is None and not self._over and self._orders.left()
        if not is_needed or self._machine.now() < self._start_at:
            return
        if len(self._hanging) >= MOST_HANGING:
            self._orders.failed(f"{len(self._hanging)} processes hang there", lasting=False)
            return
        self._starts += 1
        self._started = self._machine.now()
        self._silent_at = self._started + self._patience
        try:
            process = self._machine.start_keeper(self._directory, self._starts, self._heard, self._ended, self._base)
        except OSError as error:
            self._unable(f"the process that stores files cannot be started: {error.strerror}")
            return
        self._process = process
        self._orders.give(process, self._starts)

    def _let_go(self, *, kill: bool) -> None:
        """Hear no more of the process. One that is killed may hang all the same."""
        process, self._process = self._process, None
        if process is not None:
            if kill:
                self._hanging.add(process)
            process.close(kill=kill)

    def _ended(self, process: KeeperProcess, status: int) -> None:
        self._hanging.discard(process)
        if process is self._process:
            self._process = None
            how = f"by signal {-status}" if status < 0 else f"with status {status}"
            self._unable(f"the process that stores files was ended {how}")

    def _unable(self, why: str) -> None:
        """It could not be started, or ended by itself: the first time that may be somebody's mistake."""
        self._ends += 1
        self._start_at = self._machine.now() + self._ends - 1
        if self._ends >= MOST_ENDS:
            self._orders.failed(why, lasting=True)
        else:
            self._start_if_due()

    def _heard(self, words: Sequence[str]) -> None:
        self._silent_at = self._machine.now() + self._patience
        match words:
            case ["alive", size]:
                self._silent_at += int(size) / FLUSHED_PER_SECOND
            case _:
                self._orders.heard(words)

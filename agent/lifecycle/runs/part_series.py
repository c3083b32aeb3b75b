"""What the program of this pod's part writes of itself (A4_SERIES_FILE), read while the part runs and at its end."""

from __future__ import annotations

from collections.abc import Callable

from agent.decide.messages import SaidOfPart, TellSeries
from agent.decide.series import MOST_FILE, PodSeries, SeriesReader
from agent.machine.api import Machine, Timer
from agent.workloads.base import RunContext

SERIES_SECONDS = 30.0
"""A pod that is lost has told its series up to so long before."""
PIECE = 256 << 10
"""Bytes that are read at once in the loop: 4,000 records, some 30 ms. What is left comes a second later."""


class PartSeries:
    """`say` gets what is new while the part runs."""

    def __init__(self, machine: Machine, context: RunContext, say: Callable[[SaidOfPart], None]) -> None:
        self._machine = machine
        self._run_id = context.run_id
        self._path = context.series_file
        self._reader = SeriesReader(len(context.plan.peers))
        self._say = say
        self._told = 0
        """Bytes of which `say` was told."""
        self._timer: Timer | None = None

    def begin(self) -> None:
        self._timer = self._machine.later(SERIES_SECONDS, self._look)

    def _look(self) -> None:
        if self._read() == PIECE:
            self._timer = self._machine.later(1.0, self._look)
            return
        self.begin()
        if self._reader.offset > self._told:
            self._told = self._reader.offset
            self._say(TellSeries(self._run_id, self._reader.told()))

    def stop(self) -> bool:
        """The part is over. Whether there is a file, which `finish` is to read."""
        if self._timer is not None:
            self._timer.cancel()
        directory, _, name = self._path.rpartition("/")
        return name in self._machine.list_dir(directory)

    def finish(self) -> PodSeries:
        """All of it. For a thread: much may be left."""
        while self._read():
            pass
        self._reader.finish()
        return self._reader.told()._replace(empty=not self._reader.offset)

    def _read(self) -> int:
        """How many bytes there were."""
        offset = self._reader.offset
        data = self._machine.read_part(self._path, offset, min(PIECE, MOST_FILE - offset))
        self._reader.take(data)
        return len(data)

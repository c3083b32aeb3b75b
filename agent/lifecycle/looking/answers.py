"""What sources have said of a run's processes so far, and how long they may still take."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

from agent.decide.diagnosis import SourceName
from agent.health.why.records import GroupProgress, Ras, Thread

ALL_SHARE = 0.9
"""Part of the time after which everything must have been read."""


class Answers:
    """What came, by process; filled by threads."""

    def __init__(self) -> None:
        self.groups: dict[int, tuple[GroupProgress, ...]] = {}
        self.threads: dict[int, tuple[Thread, ...]] = {}
        self.gil: dict[int, bool] = {}
        self.missing: dict[tuple[SourceName, str], list[int]] = {}
        """(source, why) → processes."""
        self.ras: Ras | None = None
        self.dumps: dict[int, tuple[GroupProgress, ...]] = {}
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

"""How a container is told to end: SIGTERM, and SIGKILL when its time is over."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from dataclasses import dataclass, field

from tests.kubernetes.command import Command
from tests.kubernetes.kubelet.fields import Object
from tests.kubernetes.kubelet.probes import Prober
from tests.kubernetes.runtime import Container


@dataclass
class Running:
    """A container that runs, and what watches it."""

    spec: Object
    container: Container
    over: threading.Event
    probers: list[Prober] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)
    """It was told to end."""

    def execute(self, argv: list[str]) -> Command:
        return self.container.exec(argv)

    def signal_all(self, number: signal.Signals) -> None:
        """To every process in it, also to those that others start meanwhile."""
        space = os.stat(f"/proc/{self.container.pid}/ns/pid").st_ino
        told = set[int]()
        while (
            pids := {pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _space(pid) == space} - told
        ):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            told |= pids

    def stop_probing(self) -> None:
        for prober in self.probers:
            prober.over.set()

    def end(self, grace: float) -> None:
        """On a thread of its own, once."""
        if not self.asked.is_set():
            self.asked.set()
            self.stop_probing()
            threading.Thread(target=self._end, args=(grace,), name="end", daemon=True).start()

    def _end(self, grace: float) -> None:
        if grace > 0:
            self._kill(signal.SIGTERM)
            self.over.wait(grace)
        if not self.over.is_set():
            self._kill(signal.SIGKILL)

    def _kill(self, number: int) -> None:
        with suppress(OSError):
            self.container.kill(number)


def _space(pid: int) -> int:
    """The namespace of its processes; 0: it has just ended."""
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return 0

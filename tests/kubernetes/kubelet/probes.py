"""Probes of a container: what each asks, and what follows from the answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from tests.kubernetes.command import Command
from tests.kubernetes.kubelet.fields import Object

KINDS = ("startupProbe", "livenessProbe", "readinessProbe")


class Count(NamedTuple):
    """Answers of one kind in a row."""

    good: int = 0
    bad: int = 0


def counted(count: Count, well: bool) -> Count:
    return Count(count.good + 1, 0) if well else Count(0, count.bad + 1)


def verdict(probe: Object, count: Count) -> bool | None:
    """True or False once the thresholds are reached, None before."""
    if count.good >= probe.get("successThreshold", 1):
        return True
    return False if count.bad >= probe.get("failureThreshold", 3) else None


def port_of(container: Object, port: int | str) -> int:
    """A probe may name one of the container's ports."""
    if isinstance(port, int) or port.isdigit():
        return int(port)
    (number,) = [each["containerPort"] for each in container.get("ports") or () if each.get("name") == port]
    return int(number)


class Target(NamedTuple):
    """What a probe can reach: the container's address, and commands in it."""

    container: Object
    address: str
    execute: Callable[[list[str]], Command]


def ask(probe: Object, target: Target) -> bool:
    """Whether the container answers well, within the probe's time."""
    limit = float(probe.get("timeoutSeconds", 1))
    if "exec" in probe:
        return _executed(target.execute(probe["exec"]["command"]), limit)
    asked = probe["tcpSocket"]
    with suppress(OSError):
        address = (target.address, port_of(target.container, asked["port"]))
        socket.create_connection(address, limit).close()
        return True
    return False


def _executed(process: Command, limit: float) -> bool:
    with process:
        try:
            return process.wait(limit) == 0
        except TimeoutError:
            process.kill()
            return False


class Prober(threading.Thread):
    """Asks one probe of one container until `stop`; `tell` hears each verdict."""

    def __init__(self, kind: str, probe: Object, target: Target, tell: Callable[[str, bool], None]) -> None:
        super().__init__(name=kind, daemon=True)
        self._kind = kind
        self._probe = probe
        self._target = target
        self._tell = tell
        self.over = threading.Event()

    def run(self) -> None:
        count, told = Count(), None
        self.over.wait(float(self._probe.get("initialDelaySeconds", 0)))
        while not self.over.is_set():
            try:
                well = ask(self._probe, self._target)
            except Exception:  # the container has ended under it
                well = False
            if self.over.is_set():
                return
            count = counted(count, well)
            now = verdict(self._probe, count)
            if now is not None and now != told:
                told = now
                self._tell(self._kind, now)
                if self._kind == "startupProbe":
                    return
            self.over.wait(float(self._probe.get("periodSeconds", 10)))

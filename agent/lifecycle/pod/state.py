"""What a pod writes of itself for people and probes: its state, its events, its sign of life.

A full disk must not end a job that needs none of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from agent import __version__
from agent.decide.pod_state import Loss, PodState, RunSummary
from agent.lifecycle.waits import BEAT_SECONDS
from agent.log import Log
from agent.machine.api import Machine
from agent.paths import RunDir
from agent.settings import Settings

KEPT_SUMMARIES = 50
"""Runs that `a4-agent status` lists."""


class State:
    """The files of one pod's state."""

    def __init__(self, machine: Machine, log: Log, settings: Settings) -> None:
        self._machine = machine
        self._log = log
        self._dir = RunDir(settings.run_dir)
        self._state = PodState(
            "preparing",
            machine.wall(),
            settings.epoch,
            settings.index,
            settings.nnodes,
            settings.gpus_per_node,
            __version__,
        )
        self._lost = False
        """Something could not be written, which has been said."""
        self.phases: dict[str, float] = {}
        """When this pod first reached each event, in seconds since 1970."""

    def event(self, name: str, detail: str = "", when: float | None = None) -> None:
        """One line of events.jsonl; `when` on the machine's clock, now by default."""
        now = self._machine.now()
        record: dict[str, Any] = {"event": name, "monotonic": now, "time": self._machine.wall()}
        if when is not None:
            record |= {"monotonic": when, "time": record["time"] - (now - when)}
        self.phases.setdefault(name, round(record["time"], 3))
        if detail:
            record["detail"] = self._log.masked(detail)
        line = json.dumps(record).encode() + b"\n"
        self.attempt(self._dir.events, lambda: self._machine.append(self._dir.events, line))

    def phase(self, name: str, code: int | None = None) -> None:
        """What this pod is doing, for `a4-agent status`."""
        self._state = self._state._replace(phase=name, since=self._machine.wall(), missing=None, code=code)
        self.update()

    def sleep(self) -> None:
        """The job's end is recorded; the pod keeps its code for when it ends."""
        self.phase("sleeping", code=self._state.end.code if self._state.end else 0)

    def update(self, **fields: Any) -> None:
        """Set fields of the state."""
        self._state = self._state._replace(**fields)
        self.write_json(self._dir.state, self._state.to_json())

    def lose(self, pods: Mapping[int, Loss]) -> None:
        """Set that these pods are lost, beside those that were."""
        self.update(lost={**(self._state.lost or {}), **pods})

    def found(self, index: int) -> None:
        """Set that this pod is not lost any more."""
        self.update(lost={other: loss for other, loss in (self._state.lost or {}).items() if other != index} or None)

    def cluster(self, lost: Mapping[int, Loss] | None, missing: Mapping[int, str] | None, found: int | None) -> None:
        """What the coordinator says of other pods, by index; None where it says nothing new."""
        if found is not None:
            self.found(found)
        if lost is not None:
            self.lose(lost)
        if missing is not None:
            self.update(missing=missing)

    def goes_on(self, run_id: str) -> bool:
        """Does that run have the cluster for itself now?"""
        return self.run is not None and self.run.id == run_id

    def has_lives(self, run_id: str) -> bool:
        """Does that run go on, and may start again?"""
        return self.goes_on(run_id) and self.run is not None and self.run.life is not None

    @property
    def run(self) -> RunSummary | None:
        """The run that has the cluster for itself."""
        return self._state.run

    def run_begun(self, summary: RunSummary) -> None:
        """An exclusive run has begun, on this pod or others."""
        self.event("run-started", detail=summary.id)
        self._state = self._state._replace(run=summary, idle=None, stuck=None, printed=None)
        self.phase("running")

    def run_ended(self, summary: RunSummary) -> None:
        """It is over."""
        self.event("run-ended", detail=f"{summary.code}")
        self.update(
            run=None,
            runs=(*(self._state.runs or ()), summary)[-KEPT_SUMMARIES:],
            idle=summary.until,
            stuck=None,
            printed=None,
        )

    def write_json(self, path: str, data: Mapping[str, Any]) -> None:
        """A file for people, secrets masked."""
        text = json.dumps(self._log.masker.value(data), indent=1) + "\n"
        self.attempt(path, lambda: self._machine.write(path, text, 0o600))

    def attempt(self, path: str, write: Callable[[], None]) -> None:
        """Write what is only for people; the first failure is said, and no failure ends anything."""
        try:
            write()
        except OSError as error:
            if not self._lost:
                self._log.warning(f"state of this pod cannot be kept: {path}: {error.strerror}")
            self._lost = True

    def beat_alive(self) -> None:
        """Show that the agent lives, from now on."""
        self.attempt(self._dir.alive, lambda: self._machine.refresh(self._dir.alive))
        self._machine.later(BEAT_SECONDS, self.beat_alive)

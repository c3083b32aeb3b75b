"""Before a run: every pod of it is looked at, as `a4-agent doctor` does (A4_GATE, `run --gate`)."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agent.clinic.interface import GateVerdict, judge_gate
from agent.decide.ending import JobEnd, from_bug
from agent.decide.facts import Finding
from agent.decide.messages import AskReadings, SaidOfPart, TellReadings
from agent.lifecycle.channel.roster import Roster
from agent.lifecycle.pod.pod import Pod
from agent.paths import agent_command
from agent.wire import json_object
from agent.workloads.base import RunContext

LOOK_SECONDS = 45.0
"""How long a pod may take to look at itself: doctor's readings keep to 30, and a Python has to start before."""


@dataclass
class HealthGate:
    """Asks all pods at once; `done` gets why the run must not begin, or None, and what was found."""

    _pod: Pod
    _context: RunContext
    _roster: Roster
    _done: Callable[[JobEnd | None, tuple[Finding, ...]], None]

    def __post_init__(self) -> None:
        self._readings: dict[int, Mapping[str, Any]] = {}
        self._over = False

    def begin(self) -> None:
        run_id, indices = self._context.run_id, self._context.indices
        self._pod.log.info(f"{run_id}: the gate: waiting for {len(indices)} pods to check themselves")
        self._roster.say(AskReadings(run_id, LOOK_SECONDS), sorted(indices))
        self._pod.machine.later(LOOK_SECONDS + self._pod.settings.lease, self._judge)

    def heard(self, index: int, readings: Mapping[str, Any]) -> None:
        """A pod has looked at itself, or could not: then there are no readings."""
        self._readings.setdefault(index, readings)
        if self._readings.keys() >= set(self._context.indices):
            self._judge()

    def _judge(self) -> None:
        if self._over:
            return
        self._over = True
        peers = self._context.plan.peers
        late = f"it sent no readings within {LOOK_SECONDS:g} s; on the pod, a4-agent doctor --here says more"
        run_id, indices = self._context.run_id, self._context.indices
        readings = {index: self._readings[index] for index in indices if self._readings.get(index)}
        silent = dict.fromkeys([index for index in indices if index not in readings], late)
        try:
            judged = judge_gate(readings, silent, peers, strict=self._context.spec.gate == "strict")
        except Exception:  # what pods have read may be strange in more ways than the checks foresee: not the job's end
            judged = GateVerdict(from_bug(traceback.format_exc(), self._pod.where(0)), (), "a bug in its checks")
        self._pod.log.info(f"{run_id}: the gate: {judged.words}")
        self._done(judged.end, judged.findings)


def look(pod: Pod, asked: AskReadings, say: Callable[[SaidOfPart], None]) -> None:
    """Have doctor read this pod, in a process of its own, and tell the coordinator."""
    argv = agent_command(pod.job.python, "doctor", "--readings", pod.settings.run_dir, "--before", asked.run)
    pod.machine.ask_process(argv, "/", asked.seconds, lambda answer: say(TellReadings(asked.run, json_object(answer))))

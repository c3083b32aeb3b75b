"""The limits of a run: how long it may take, and how long it may print nothing.

A run that hangs is only seen by its silence. Before it is ended, and with it what it hangs in, everybody is asked for
what its processes do: afterwards nobody could tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.decide.ending import JobEnd
from agent.decide.words import lines
from agent.errors import Exit
from agent.health.why.records import Collected
from agent.lifecycle.channel.link import beat_seconds
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.runs.why import LOOK_SECONDS, Trigger, Why, decided
from agent.machine.evidence_text import is_stuck
from agent.workloads.base import RunContext

MOST_WHY = 6000
"""Characters of what all pods say in the reason of the end; the rest is in their files."""


@dataclass
class RunLimits:
    """When a limit is hit, every pod is asked what its processes do; then the run ends: `end` gets the reason."""

    _pod: Pod
    _context: RunContext
    _why: Why
    _end: Callable[[JobEnd], None]
    _hit: JobEnd | None = None
    """The limit that was hit, while pods are asked."""

    def start(self) -> None:
        """Every part has begun."""
        spec = self._context.spec
        if spec.timeout:
            self._why.timers.later(spec.timeout, lambda: self._ask("timeout", f"the time limit of {spec.timeout:g} s"))
        if spec.stall:
            # What workers print is known with their next beat.
            late = 0.0 if self._context.indices == [0] else beat_seconds(self._pod.settings.lease)
            which = f"the limit of {spec.stall:g} s without a line of output"
            self._why.when_silent(spec.stall + late, self._pod.machine.now(), lambda: self._ask("stall", which))

    def stop(self) -> None:
        """The run ends: limits no longer count."""
        self._hit = None

    def _ask(self, trigger: Trigger, which: str) -> None:
        if self._hit is not None:
            return
        self._pod.log.error(f"{self._context.run_id} hit {which}; asking every pod what its processes do")
        self._hit = JobEnd(Exit.TIME_LIMIT, f"{self._context.spec.workload} hit {which}")
        self._why.ask(trigger, LOOK_SECONDS, self._end_run)

    def _end_run(self, collected: Collected) -> None:
        if self._hit is not None:
            found = self._why.found = decided(self._pod, collected)
            self._end(self._hit._replace(why=lines(found.sentence if found is not None else "", self._described())))

    def _described(self) -> str:
        found = self._why.summaries
        said = [f"pod {index}: {line}" for index in sorted(found) for line in found[index].splitlines()]
        said.sort(key=lambda line: not is_stuck(line))  # of 1,000 ranks that wait for one, that one is shown
        silent = sorted(self._why.awaited() - set(found))
        if silent:
            said.append(f"pods {', '.join(map(str, silent))} did not say in time what they do")
        text = "\n".join(said)
        directory = f"{self._pod.dir.run(self._context.run_id)}/evidence.txt"
        cut = text if len(text) <= MOST_WHY else f"{text[:MOST_WHY]}…"
        return f"{cut}\nstacks and last output of every rank: {directory} on each pod, evidence/ in the results"

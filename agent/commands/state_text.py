"""What `a4-agent status` says of a pod's state: text for people."""

from __future__ import annotations

import time
from collections.abc import Iterable

from agent.decide.location import location_text
from agent.decide.plan import Plan
from agent.decide.pod_state import Loss, PodState
from agent.decide.subset import ranges
from agent.decide.tables import render
from agent.paths import RunDir

FRESH_SECONDS = 30.0
MOST_RUNS = 10
"""Past runs in the text; --json has them all."""
MOST_WHAT = 80
PHASES = {
    "preparing": "is starting",
    "waiting": "waits for the coordinator to connect",
    "forming": "is forming the cluster",
    "formed": "has the plan",
    "running": "takes part in a run",
    "sleeping": "sleeps between runs",
    "ended": "has ended",
}


def describe(state: PodState, plan: Plan | None, alive: float | None, now: float, directory: RunDir) -> str:
    """Everything, the most urgent first. `alive` is the age of the agent's last sign of life, in seconds."""
    lines = [
        *_head(state, alive, now),
        *_current(state, now),
        *_idle(state, now),
        *_end(state),
        *_missing(state),
        *_past(state, now, directory),
        *_peers(state, plan, now),
    ]
    return "".join(f"{line}\n" for line in lines)


def _head(state: PodState, alive: float | None, now: float) -> list[str]:
    phase = state.phase
    lines = [
        f"pod {state.index} of {state.pods} {PHASES.get(phase, phase)}, since {ago(now - state.since)}",
        f"epoch {state.epoch}, a4-agent {state.agent}",
    ]
    if phase != "ended" and (alive is None or alive > FRESH_SECONDS):
        lines.append("the agent itself gives no sign of life: it was killed or hangs")
    return lines


def _current(state: PodState, now: float) -> list[str]:
    run = state.run
    if run is None:
        return []
    since, pods = now - run.since, ranges(run.pods)
    lines = [f"run {run.id} ({run.workload}) by {run.by} on pods {pods}, since {ago(since)}"]
    lines.append(f"  what it prints: a4-agent logs {run.id}")
    return lines + ([f"  results on pod 0: {run.results}"] if run.results else [])


def _idle(state: PodState, now: float) -> list[str]:
    if state.phase != "sleeping":
        return []
    since = state.idle or max([state.since, *(run.until or 0.0 for run in state.runs or ())])
    gpus = state.pods * state.gpus
    return [f"idle for {ago(now - since)}: {gpus} GPUs; a4-agent release ends the cluster"]


def _end(state: PodState) -> list[str]:
    end = state.end
    if end is None:
        return []
    where = f" ({end.where})" if end.where else ""
    why = [f"  {line}" for line in end.why.splitlines()]
    return [f"the job's end: exit code {end.code}, {end.what}{where}", *why]


def _missing(state: PodState) -> list[str]:
    return [f"missing: pod {index}: {why}" for index, why in (state.missing or {}).items()]


def _past(state: PodState, now: float, directory: RunDir) -> list[str]:
    """The newest runs as a table, and where their logs are."""
    runs = state.runs
    if not runs:
        return []
    header = ["run", "workload", "by", "start", "took", "code", "what"]
    rows = [
        [
            run.id,
            run.workload,
            run.by,
            clock(run.since, now),
            ago((run.until or now) - run.since),
            str(run.code),
            _cut(f"{run.what} ({run.where})" if run.where else f"{run.what}"),
        ]
        for run in runs[-MOST_RUNS:]
    ]
    older = len(runs) - len(rows)
    note = [f"and {older} older: a4-agent status --json"] if older else []
    results = runs[-1].results
    return [
        "",
        "past runs:",
        *_indented(render(header, rows, right=(4, 5)).splitlines()),
        *_indented(note),
        f"logs: a4-agent logs RUN; of this pod also in {directory.runs}/RUN/spool",
        *([f"results of {runs[-1].id} on pod 0: {results}"] if results else []),
    ]


def _peers(state: PodState, plan: Plan | None, now: float) -> list[str]:
    if plan is None:
        return []
    lost = state.lost or {}
    formed = f", formed {ago(now - state.formed)} ago" if state.formed is not None else ""
    header = ["rank", "pod", "name", "state", "place"]
    rows = [
        [
            str(rank),
            str(peer.index),
            peer.name,
            _state(lost.get(peer.index), now),
            location_text(tuple(map(_short, peer.place))),
        ]
        for rank, peer in enumerate(plan.peers)
    ]
    counts = f"{len(plan.peers)} pods x {plan.slots} slots{formed}" + (f"; {len(lost)} lost" if lost else "")
    return ["", f"cluster: {counts}", *_indented(render(header, rows, right=(0, 1)).splitlines())]


def _state(lost: Loss | None, now: float) -> str:
    return f"lost {ago(now - lost.since)} ago: {lost.why}" if lost else "here"


def _short(part: str) -> str:
    """Of a hash the beginning is enough: a4-agent topology --json has it whole."""
    return part if len(part) <= 24 else f"{part[:12]}…"


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _cut(text: str) -> str:
    return text if len(text) <= MOST_WHAT else text[: MOST_WHAT - 1] + "…"


def ago(seconds: float) -> str:
    """A length of time in words."""
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def clock(when: float, now: float) -> str:
    """A time of day, with its date unless that is less than a day ago."""
    return time.strftime("%H:%M:%S" if 0 <= now - when < 86400 else "%Y-%m-%d %H:%M", time.localtime(when))

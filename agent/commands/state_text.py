"""What `a4-agent status` says of a pod's state: text for people."""

from __future__ import annotations

import time
from collections.abc import Iterable

from agent.decide.location import location_text, short_part
from agent.decide.plan import Plan
from agent.decide.pod_state import PodState
from agent.decide.subset import grouped, pods_text, ranges
from agent.decide.tables import render
from agent.decide.words import plural
from agent.paths import RunDir

FRESH_SECONDS = 30.0
MOST_RUNS = 10
"""Past runs in the text; --json has them all."""
MOST_COLUMNS = 160
WIDE_COLUMNS = 100
"""On fewer the text leaves out who began a run."""
MOST_REASONS = 6
"""Lines of a failure's reason on a screen that shows the rest, too."""
PAST_LINES = 6
"""Lines of a screen that the table of past runs needs beside its rows."""
PHASES = {
    "preparing": "is starting",
    "waiting": "waits for the coordinator to connect",
    "forming": "is forming the cluster",
    "formed": "has the plan",
    "running": "takes part in a run",
    "sleeping": "sleeps between runs",
    "ended": "has ended",
}


def describe(
    state: PodState,
    plan: Plan | None,
    alive: float | None,
    now: float,
    directory: RunDir,
    *,
    columns: int = 0,
    lines: int = 0,
) -> str:
    """Everything, the most urgent first, or what a screen of so many `columns` and `lines` has room for (0: any).

    `alive` is the age of the agent's last sign of life, in seconds.
    """
    found = [*_head(state, alive, now), *_pods(state, plan, now), *_current(state, now), *_idle(state, now)]
    found += _end(state, MOST_REASONS if lines else None)
    if lines:
        found += _past(state, now, directory, columns, lines - len(found) - PAST_LINES)
    else:
        found += [*_past(state, now, directory, columns, MOST_RUNS), *_table(state, plan)]
    return "".join(f"{line[:columns] if lines else line}\n" for line in found)


def _head(state: PodState, alive: float | None, now: float) -> list[str]:
    """Which pod this is and what it does. An agent that was killed cannot say so: its sign of life is too old then."""
    phase = state.phase
    lines = [
        f"pod {state.index} of {state.pods} {PHASES.get(phase, phase)}, since {ago(now - state.since)}",
        f"epoch {state.epoch}, a4-agent {state.agent}",
    ]
    if phase != "ended" and (alive is None or alive > FRESH_SECONDS):
        lines.append("the agent itself gives no sign of life: it was killed or hangs")
    return lines


def _current(state: PodState, now: float) -> list[str]:
    """The run that goes on, and where to read what it prints."""
    run = state.run
    if run is None:
        return []
    since, pods = now - run.since, ranges(run.pods)
    lines = [f"run {run.id} ({run.workload}) by {run.by} on pods {pods}, since {ago(since)}"]
    lines.append(f"  what it prints: a4-agent logs {run.id}")
    return lines + ([f"  results on pod 0: {run.results}"] if run.results else [])


def _idle(state: PodState, now: float) -> list[str]:
    """A sleeping cluster holds GPUs that nobody uses."""
    if state.phase != "sleeping":
        return []
    since = state.idle or max([state.since, *(run.until or 0.0 for run in state.runs or ())])
    gpus = state.pods * state.gpus
    return [f"idle for {ago(now - since)}: {gpus} GPUs; a4-agent release ends the cluster"]


def _end(state: PodState, most: int | None) -> list[str]:
    """How the job ended, with `most` lines of the reason (None: all)."""
    end = state.end
    if end is None:
        return []
    where = f" ({end.where})" if end.where else ""
    why = [f"  {line}" for line in end.why.splitlines()]
    more = [f"  … {len(why[most:])} more lines: a4-agent status"] if most is not None and why[most:] else []
    return [f"the job's end: exit code {end.code}, {end.what}{where}", *why[:most], *more]


def _pods(state: PodState, plan: Plan | None, now: float) -> list[str]:
    """How many pods are ready, and which are not."""
    lost, missing = state.lost or {}, state.missing or {}
    if plan is None and not missing:
        return []
    count, slots = (len(plan.peers), plan.slots) if plan else (state.pods, state.gpus)
    counts = {"ready": count - len(lost) - len(missing), "lost": len(lost), "missing": len(missing)}
    words = ", ".join(f"{number} {name}" for name, number in counts.items() if number)
    formed = f", formed {ago(now - state.formed)} ago" if state.formed is not None else ""
    losses = grouped({index: f"{ago(now - loss.since)} ago: {loss.why}" for index, loss in lost.items()})
    named = [f"lost: {pods_text(pods)}, {when}" for when, pods in losses.items()]
    named += [f"missing: {pods_text(pods)}: {why}" for why, pods in grouped(missing).items()]
    return [f"{plural('pod', range(count))}: {count} x {slots} slots{formed}: {words}", *_indented(named)]


def _past(state: PodState, now: float, directory: RunDir, columns: int, most: int) -> list[str]:
    """The newest runs as a table, and where their logs are."""
    runs = state.runs
    if not runs or most < 1:
        return []
    rows = [
        [
            run.id,
            run.by.partition(" (")[0],
            clock(run.since, now),
            ago((run.until or now) - run.since),
            str(run.code),
            f"{run.what} ({run.where.partition(',')[0]})" if run.where else f"{run.what}",
        ]
        for run in runs[-most:]
    ]
    header = ["run", "by", "start", "took", "code", "what"]
    if 0 < columns < WIDE_COLUMNS:
        header, *rows = ([row[0], *row[2:]] for row in (header, *rows))
    older = len(runs) - len(rows)
    note = [f"and {older} older: a4-agent status --json"] if older else []
    results = runs[-1].results
    width = columns - 2 if columns else MOST_COLUMNS
    table = render(header, rows, right=(len(header) - 3, len(header) - 2)).splitlines()
    return [
        "",
        "past runs:",
        *_indented(line if len(line) <= width else line[: width - 1] + "…" for line in table),
        *_indented(note),
        f"a4-agent logs RUN prints its output (this pod's is in {directory.runs}/RUN/spool); "
        "a4-agent get RUN fetches results and logs",
        *([f"results of {runs[-1].id} on pod 0: {results}"] if results else []),
    ]


def _table(state: PodState, plan: Plan | None) -> list[str]:
    """The pods one by one. Their names are in a4-agent peers."""
    if plan is None:
        return []
    lost = state.lost or {}
    rows = [
        [
            str(rank),
            str(peer.index),
            "lost" if peer.index in lost else "ready",
            location_text(tuple(map(short_part, peer.place))),
        ]
        for rank, peer in enumerate(plan.peers)
    ]
    return ["", *_indented(render(["rank", "pod", "state", "place"], rows, right=(0, 1)).splitlines())]


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def ago(seconds: float) -> str:
    """A length of time in words."""
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def clock(when: float, now: float) -> str:
    """A time of day, with its date unless that is less than a day ago."""
    return time.strftime("%H:%M:%S" if 0 <= now - when < 86400 else "%Y-%m-%d %H:%M", time.localtime(when))

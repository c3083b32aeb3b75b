"""What `a4-agent status` says of a pod's state: text for people."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from agent.decide.location import location_text, short_part
from agent.decide.plan import Plan
from agent.decide.pod_state import PodState, RunSummary
from agent.decide.run_names import titled
from agent.decide.subset import grouped, pods_text, ranges
from agent.decide.tables import Cell, render
from agent.decide.words import at_most, plural
from agent.log import utc

MOST_RUNS = 10
"""Past runs in the text; --json has them all."""
WIDE_COLUMNS = 100
"""On fewer the text leaves out who began a run."""
MOST_REASONS = 6
"""Lines of a failure's reason on a screen that shows the rest, too."""
PAST_LINES = 3
"""Lines of a screen that the table of past runs needs beside its rows."""
LEAST_PAST = PAST_LINES + 3
"""Lines of a screen that pods leave to past runs: then pods of a place share one."""
LEAST_COMMAND = 8
INDENT = "  "
LOGS = "a4-agent logs RUN prints its output, a4-agent get RUN fetches results and logs"
OLDER = "Output: a4-agent logs RUN"
PHASES = {
    "preparing": "starting for {}",
    "waiting": "waiting for the coordinator to connect for {}",
    "forming": "forming the cluster for {}",
    "formed": "received the plan {} ago",
    "running": "taking part in a run for {}",
    "sleeping": "sleeping between runs for {}",
    "ended": "ended {} ago",
}


def describe(
    state: PodState,
    plan: Plan | None,
    alive: float | None,
    now: float,
    *,
    columns: int = 0,
    lines: int = 0,
) -> str:
    """Everything, the most urgent first, or what a screen of so many `columns` and `lines` has room for (0: any).

    `alive` is the age of the agent's last sign of life, in seconds.
    """
    most = MOST_REASONS if lines else None
    found = [*_head(state, alive, now), *_pods(state, plan, now, most), *_current(state, now), *_idle(state, now)]
    found += _end(state, most)
    if not lines:
        found += [*_table(state, plan, None), *_past(state, now, columns, MOST_RUNS), *_newest_results(state)]
        return "".join(f"{line}\n" for line in found)
    found += _table(state, plan, lines - len(found) - (LEAST_PAST if state.runs else 0))
    found += _past(state, now, columns, lines - len(found) - PAST_LINES)
    return "".join(f"{_cut(line, columns)}\n" for line in found)


def _head(state: PodState, alive: float | None, now: float) -> Iterator[str]:
    """Which pod this is and what it does. An agent that was killed cannot say so: its sign of life is too old then."""
    phase = state.phase
    yield f"pod {state.index} of {state.pods}: {PHASES.get(phase, phase + ' for {}').format(ago(now - state.since))}"
    yield f"epoch {state.epoch}, a4-agent {state.agent}"
    if phase != "ended" and (alive is None or alive > 30.0):
        yield "the agent does not respond: it was killed or hangs"


def _current(state: PodState, now: float) -> Iterator[str]:
    """The run that goes on, and where to read what it prints."""
    if run := state.run:
        took = ago(now - run.since)
        life = f", in life {run.life}" if (run.life or 0) > 1 else ""
        yield f"run {titled(run.id, run.name)} by {run.by} on pods {ranges(run.pods)}, running for {took}{life}"
        yield f"  {_command(run)}"
        if run.ended_by:
            yield f"  life {(run.life or 0) - 1} ended by: {run.ended_by}"
        if run.awaits:
            yield f"  waits for the replacement of {pods_text(run.awaits)}"
        yield f"  output: a4-agent logs {run.name or run.id}"
        if run.results:
            yield f"  results on pod 0: {run.results}"


def _idle(state: PodState, now: float) -> Iterator[str]:
    """A sleeping cluster holds GPUs that nobody uses."""
    if state.phase == "sleeping":
        since = state.idle or max([state.since, *(run.until or 0.0 for run in state.runs or ())])
        yield f"idle for {ago(now - since)}: {state.pods * state.gpus} GPU slots; a4-agent release ends the cluster"


def _end(state: PodState, most: int | None) -> Iterator[str]:
    """How the job ended, with `most` lines of the reason (None: all)."""
    if end := state.end:
        where = f" ({end.where})" if end.where else ""
        yield f"the job ended: exit code {end.code}, {end.what}{where}"
        why = end.why.splitlines()
        yield from _indented(at_most(why, most or len(why), "… {} more lines: a4-agent status"))


def _pods(state: PodState, plan: Plan | None, now: float, most: int | None) -> list[str]:
    """How many pods are ready, and which are not, in `most` lines of reasons (None: any)."""
    lost, missing = state.lost or {}, state.missing or {}
    if plan is None and not missing:
        return []
    count, slots = (len(plan.peers), plan.slots) if plan else (state.pods, state.gpus)
    counts = {"ready": count - len(lost) - len(missing), "lost": len(lost), "missing": len(missing)}
    counted = ", ".join(f"{number} {name}" for name, number in counts.items() if number)
    formed = f", formed {ago(now - state.formed)} ago" if state.formed is not None else ""
    words = {peer.index: peer.where for peer in plan.peers} if plan else {}
    losses = grouped({index: (ago(now - loss.since), loss.why) for index, loss in lost.items()})
    named = [f"lost {when} ago: {_named(pods, words)}: {why}" for (when, why), pods in losses.items()]
    named += [f"missing: {pods_text(pods)}: {why}" for why, pods in grouped(missing).items()]
    return [
        f"{plural('pod', range(count))}: {count} x {slots} slots{formed}: {counted}",
        *_indented(at_most(named, most or len(named), "and {} more: a4-agent status")),
    ]


def _named(pods: Sequence[int], words: Mapping[int, str]) -> str:
    return words.get(pods[0], pods_text(pods)) if len(pods) == 1 else pods_text(pods)


def _past(state: PodState, now: float, columns: int, most: int) -> list[str]:
    """The newest runs as a table that fits so many `columns` (0: any), and how to see more of them."""
    runs = state.runs
    if not runs or most < 1:
        return []
    shown = runs[-most:]
    header = ["past run", "name", "by", "start", "took", "code", "command", "end"]
    rows = [
        [
            run.name or run.id if columns else run.id,
            run.name,
            run.by.partition(" (")[0],
            clock(run.since, now) if columns else utc(run.since),
            ago((run.until or now) - run.since),
            str(run.code),
            _command(run),
            _failure(run),
        ]
        for run in shown
    ]
    out = {"name"} if columns or not any(run.name for run in shown) else set()
    out |= {"by"} if 0 < columns < WIDE_COLUMNS else set()
    out |= {"end"} if not any(map(_failure, shown)) else set()
    keep = [at for at, name in enumerate(header) if name not in out]
    header, *rows = ([row[at] for at in keep] for row in (header, *rows))
    lines = _indented(_past_lines(header, rows, columns - len(INDENT)))
    older = len(runs) - len(shown)
    more = f"and {older} older: a4-agent status --json. " if older else ""
    return ["", *lines, f"{more}{OLDER if older else LOGS}"]


def _past_lines(header: Sequence[str], rows: Sequence[Sequence[str]], columns: int) -> list[str]:
    """On a terminal a command has the rest of the line, or half of it where the end stands behind it."""
    at = header.index("command")
    right = [header.index("took"), header.index("code")]
    if columns > 0:
        before = max(map(len, render(header[:at], [row[:at] for row in rows], right).splitlines()))
        room = max(LEAST_COMMAND, (columns - before - 2) // 2)
        texts = [f"{_cut(row[at], room)}  {row[-1]}" if row[at + 1 :] and row[-1] else row[at] for row in rows]
        header, rows = header[: at + 1], [[*row[:at], text] for row, text in zip(rows, texts, strict=True)]
    lines = render(header, rows, right).splitlines()
    return [_cut(line, columns) for line in lines] if columns > 0 else lines


def _command(run: RunSummary) -> str:
    """What it runs, with its note as a comment of a shell."""
    command = run.command or run.workload
    return f"{command}  # {run.note}" if run.note else command


def _failure(run: RunSummary) -> str:
    """How it ended, unless that was well and in its first life."""
    life = f"in life {run.life}" if (run.life or 0) > 1 else ""
    if run.code == 0:
        return life
    where = run.where.partition(",")[0] if run.where else ""
    details = ", ".join(filter(None, (where, life)))
    return f"{run.what} ({details})" if details else f"{run.what}"


def _newest_results(state: PodState) -> Iterator[str]:
    """Where they are."""
    if state.runs and (newest := state.runs[-1]).results:
        yield f"results of {newest.name or newest.id} on pod 0: {newest.results}"


def _table(state: PodState, plan: Plan | None, most: int | None) -> list[str]:
    """The pods one by one or, where that takes more than `most` lines, those of a place together; nothing where that
    does, too. Their nodes are in a4-agent peers."""
    if plan is None:
        return []
    lost = state.lost or {}
    states = ["lost" if peer.index in lost else "ready" for peer in plan.peers]
    places = [tuple(map(short_part, peer.place)) for peer in plan.peers]
    rows: list[list[Cell]] = [
        [rank, peer.index, states[rank], peer.short_name, location_text(places[rank])]
        for rank, peer in enumerate(plan.peers)
    ]
    lines = ["", *_indented(render(["rank", "pod", "state", "name", "place"], rows).splitlines())]
    for parts in range(max(map(len, places), default=0), 0, -1):
        if most is None or len(lines) <= most:
            return lines
        groups = grouped({rank: (states[rank], place[:parts]) for rank, place in enumerate(places)})
        rows = [
            [ranges(ranks), len(ranks), word, location_text(place), ranges(plan.peers[rank].index for rank in ranks)]
            for (word, place), ranks in groups.items()
        ]
        lines = ["", *_indented(render(["ranks", "count", "state", "place", "pods"], rows).splitlines())]
    return lines if most is None or len(lines) <= most else []


def _cut(line: str, columns: int) -> str:
    return line if not columns or len(line) <= columns else f"{line[: columns - 1]}…"


def _indented(lines: Iterable[str]) -> list[str]:
    return [INDENT + line for line in lines]


def ago(seconds: float) -> str:
    """A length of time in words."""
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def clock(when: float, now: float) -> str:
    """For a terminal: a time of day, with its date unless that is less than a day ago."""
    return time.strftime("%H:%M:%S" if 0 <= now - when < 86400 else "%Y-%m-%d %H:%M", time.localtime(when))

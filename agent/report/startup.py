"""The start of every pod, phase by phase, from the earliest start on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from types import SimpleNamespace
from typing import NamedTuple

from agent.decide.result import Pod, Result
from agent.report.number_words import duration_text

FIRST = "agent-started"
COLLECTIVE = "first-collective"
OF_THE_RUN = ("process-started", "ranks-ready", COLLECTIVE)
"""Phases of a run that was submitted to a cluster, which had formed long before."""
PHASES = {
    "sshd-listening": "sshd listens",
    "facts-ready": "facts known",
    "coordinator-connected": "coordinator connected",
    "peers-ready": "all peers there",
    "plan-ready": "plan there",
    "process-started": "process started",
    "ranks-ready": "all ranks found",
    COLLECTIVE: "first collective done",
}
"""What ends each stretch of a bar, in the order of the numbers that the bars bear."""
OWN = (FIRST, "sshd-listening", "facts-ready", "coordinator-connected")
"""Phases that a pod reaches by itself. The coordinator does not connect to itself."""
MOST_BARS = 32
SLOWEST = 8


class Stretch(NamedTuple):
    """Part of a bar: `phase` counts from 1; where it begins and how long it is, in percent of the whole."""

    phase: int
    left: float
    width: float
    words: str
    """What it was, and how long it took."""


class Bar(NamedTuple):
    """One pod."""

    label: str
    node: str
    stretches: Sequence[Stretch]
    ready: str
    """When the pod itself was ready; what comes later is waiting for others, or common to all."""


class Startup(NamedTuple):
    """How the pods came up, or, of a run that was submitted later, how its processes did."""

    total: str
    phases: Sequence[SimpleNamespace]
    bars: Sequence[Bar]
    aggregated: bool
    """There are too many pods for a bar each: `bars` are of the slowest."""
    since: str
    """What the times are counted from."""
    until: str
    """What `total` ends with."""
    ran: str
    """How long the processes ran after `total`, in words: the two add up; and what is not known."""


def startup(result: Result) -> Startup | None:
    """None when no pod said when it reached two phases."""
    submitted = _submitted(result)
    marks = {pod.index: _marks(pod, submitted) for pod in result.pods}
    times = [time for reached in marks.values() for _, time in reached]
    if not times or max(times) <= min(times):
        return None
    zero, whole = min(times), max(times) - min(times)
    pods = [pod for pod in result.pods if marks[pod.index]]
    aggregated = len(pods) > MOST_BARS
    if aggregated:
        pods = sorted(pods, key=lambda pod: -_ready(marks[pod.index]))[:SLOWEST]
    spreads = [_spread(number, name, marks, zero, whole) for number, name in enumerate(PHASES, 1)]
    found = [spread for spread in spreads if spread]
    ended = max((pod.phases["process-ended"] for pod in result.pods if "process-ended" in pod.phases), default=0.0)
    ran = [f"From then on, the processes ran for {duration_text(ended - max(times))}."] if ended > max(times) else []
    if ended and not any(COLLECTIVE in pod.phases for pod in result.pods):
        ran.append("When a first collective was done is not known.")
    until = "the first collective was done" if found[-1].words == PHASES[COLLECTIVE] else "the last pod was ready"
    since = "the first pod’s start" if submitted is None else "the run’s submission"
    return Startup(
        total=duration_text(whole),
        phases=found,
        bars=[_bar(pod, marks[pod.index], zero, whole) for pod in pods],
        aggregated=aggregated,
        since="the start of the last life" if _last_life(result) else since,
        until=until,
        ran=" ".join(ran),
    )


def _last_life(result: Result) -> float | None:
    """When the last life of a run began that has started again: what pods reached since is about that one."""
    return result.lives[-1].next if result.lives else None


def _submitted(result: Result) -> float | None:
    """When what is shown began, if the cluster had formed before; None for the first run of a cluster."""
    if life := _last_life(result):
        return life
    formed = max((pod.phases["plan-ready"] for pod in result.pods if "plan-ready" in pod.phases), default=None)
    # So much later than the plan was there: more than clocks differ.
    return result.since if formed is not None and result.since > formed + 5.0 else None


Marks = list[tuple[str, float]]
"""The beginning and the phases that a pod reached, by time."""


def _marks(pod: Pod, submitted: float | None) -> Marks:
    """The phases that a pod reached, by time. Of a submitted run only its own count, from its submission on."""
    names = (FIRST, *PHASES) if submitted is None else OF_THE_RUN
    found = [(name, pod.phases[name]) for name in names if name in pod.phases]
    if submitted is not None and found:
        found.append((FIRST, submitted))
    return sorted(found, key=lambda mark: mark[1])


def _bar(pod: Pod, marks: Marks, zero: float, whole: float) -> Bar:
    """The stretches of one pod. A phase that came at once, or out of its order, has none."""
    numbers = {name: number for number, name in enumerate(PHASES, 1)}
    stretches = [
        Stretch(
            numbers[name],
            _percent(before - zero, whole),
            _percent(time - before, whole),
            f"until {PHASES[name]}: {duration_text(time - before)}",
        )
        for (_, before), (name, time) in pairwise(marks)
        if name in PHASES and time > before
    ]
    return Bar(f"pod {pod.index}", pod.node, stretches, duration_text(_ready(marks) - zero))


def _ready(marks: Marks) -> float:
    """When the pod itself was ready; all later phases wait for others."""
    own = [time for name, time in marks if name in OWN]
    return max(own if len(own) > 1 else [time for name, time in marks if name != COLLECTIVE])


def _spread(number: int, name: str, marks: Mapping[int, Marks], zero: float, whole: float) -> SimpleNamespace | None:
    """When the pods reached one phase; `left`, `center` and `width` are percents of the whole. None when no pod said
    so."""
    reached = sorted((time - zero, pod) for pod, found in marks.items() for one, time in found if one == name)
    if not reached:
        return None
    first, (last, pod) = reached[0][0], reached[-1]
    middle = median(time for time, _ in reached)
    return SimpleNamespace(
        phase=number,
        words=PHASES[name],
        first=duration_text(first),
        middle=duration_text(middle),
        last=duration_text(last),
        last_pod=f"pod {pod}",
        left=_percent(first, whole),
        center=_percent(middle, whole),
        width=_percent(last - first, whole),
    )


def _percent(part: float, whole: float) -> float:
    """A part of the whole, with as many digits as a screen has pixels."""
    return round(100 * part / whole, 3)

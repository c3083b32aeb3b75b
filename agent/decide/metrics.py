"""What a pod tells Prometheus of itself and, on pod 0, of its job: names, and values from what the agent wrote."""

# Annotations are not postponed here: a NamedTuple compiles each that is a text, at every start.

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from agent.cutting import visible
from agent.decide.facts import Severity
from agent.decide.pod_state import PHASES, PodState, RunSummary
from agent.decide.result import Sweep
from agent.wire import from_json

MEASURING = ("nccl", "collectives")
"""Workloads whose bandwidths are told."""
MOST_COLLECTIVES = 12
MOST_LABEL = 200
"""Characters of a label's value."""
RUN_STATES = ("none", "waiting", "running")
OF_ALL = ("job_name", "pod_name", "node_name")
"""Labels of every series. Prometheus' own targets have `job`, `pod` and `node`."""


class Metric(NamedTuple):
    """A gauge, in base units."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    """Beside OF_ALL."""


OF_POD = (
    Metric("a4_agent_info", "1, with the release of a4-agent and the epoch of the job", ("version", "epoch")),
    Metric("a4_agent_alive_timestamp_seconds", "When the agent's loop last showed that it turns, every 5 s"),
    Metric("a4_pod_phase", "1 for what the agent of this pod does, 0 for what it does not", ("phase",)),
    Metric("a4_pod_gpus", "GPUs of this pod"),
    Metric("a4_pod_findings", "What devices of this pod counted in its last part of a run", ("severity",)),
)
OF_JOB = (
    Metric("a4_job_pods", "Pods that the job wants"),
    Metric("a4_job_pods_ready", "Pods that are in the cluster"),
    Metric("a4_job_pods_lost", "Pods that were in the cluster and are lost"),
    Metric("a4_job_restarts", "Attempts before this one: all pods were started again"),
    Metric("a4_job_exit_code", "Exit code of the job, once it is known", ("origin",)),
    Metric("a4_job_idle_timestamp_seconds", "Since when no run has the cluster; only while none has"),
    Metric("a4_run_state", "1 for the state of the cluster's run; waiting: for replacements of pods", ("state",)),
    Metric("a4_run_info", "1, with the run that has the cluster, or the last that had it", ("run", "workload")),
    Metric("a4_run_start_timestamp_seconds", "When that run began", ("run",)),
    Metric("a4_run_restarts", "How often it has started again on this cluster (lives)", ("run",)),
    Metric("a4_run_output_timestamp_seconds", "When a program of the run that goes on last printed", ("run",)),
    Metric("a4_run_hangs", "1: the run that goes on was silent and looked at, and ranks of it hang", ("run",)),
    Metric("a4_run_exit_code", "Exit code of the last run that is over", ("run", "origin")),
    Metric("a4_run_findings", "What the gate before it and the devices of its pods said of it", ("run", "severity")),
    Metric(
        "a4_run_bus_bandwidth_bytes_per_second",
        "Greatest bus bandwidth of each collective in the last run of nccl or collectives",
        ("run", "collective"),
    ),
)
METRICS = (*OF_POD, *OF_JOB)

Sample = tuple[str, tuple[str, ...], float]
"""Name, values of its labels, value."""


class Written(NamedTuple):
    """What the agent has written."""

    state: PodState | None = None
    alive: float | None = None
    """Seconds since 1970."""
    last: Mapping[str, Any] = {}
    """result.json of the last run that is over."""
    measured: Mapping[str, Any] = {}
    """The same of the last whose bandwidths are told."""


def samples(written: Written) -> Iterator[Sample]:
    """What is known; of pods other than 0, nothing of the job."""
    state = written.state
    if written.alive is not None:
        yield "a4_agent_alive_timestamp_seconds", (), written.alive
    if state is None:
        return
    yield "a4_agent_info", (state.agent, state.epoch), 1
    for phase in PHASES:
        yield "a4_pod_phase", (phase,), phase == state.phase
    yield "a4_pod_gpus", (), state.gpus
    if state.findings is not None:
        yield from _by_severity("a4_pod_findings", (), state.findings)
    if state.index == 0:
        yield from _of_job(state)
        yield from _of_runs(state, written)


def _by_severity(name: str, labels: tuple[str, ...], counts: Mapping[str, int]) -> Iterator[Sample]:
    for severity in get_args(Severity):
        yield name, (*labels, severity), counts.get(severity, 0)


def _of_job(state: PodState) -> Iterator[Sample]:
    missing = state.pods if state.missing is None else len(state.missing)
    lost = len(state.lost or ())
    yield "a4_job_pods", (), state.pods
    yield "a4_job_pods_ready", (), max(0, state.pods - (missing if state.formed is None else lost))
    yield "a4_job_pods_lost", (), lost
    if attempts := re.fullmatch(r"[0-9a-f]{8}-[0-9a-f-]{27}\.(\d+)\.(\d+)", state.epoch):
        yield "a4_job_restarts", (), sum(map(int, attempts.groups()))
    if state.end is not None:
        yield "a4_job_exit_code", (state.end.origin,), state.end.code
    if state.idle is not None:
        yield "a4_job_idle_timestamp_seconds", (), state.idle
    now = "none" if state.run is None else "waiting" if state.run.awaits else "running"
    for each in RUN_STATES:
        yield "a4_run_state", (each,), each == now


def _of_runs(state: PodState, written: Written) -> Iterator[Sample]:
    for run in state.known_runs[-1:]:
        yield "a4_run_info", (run.id, run.workload), 1
        yield "a4_run_start_timestamp_seconds", (run.id,), run.since
        yield "a4_run_restarts", (run.id,), max(0, (run.life or 1) - 1)
    if state.run is not None:
        yield "a4_run_hangs", (state.run.id,), state.stuck in ("hangs", "circle")
        if state.printed is not None:
            yield "a4_run_output_timestamp_seconds", (state.run.id,), state.printed
    if last := last_over(state):
        yield "a4_run_exit_code", (last.id, last.origin or "agent"), last.code or 0
        if written.last:
            yield from _by_severity("a4_run_findings", (last.id,), _severities(written.last.get("findings", ())))
    if measured := last_measured(state):
        for collective, most in list(_bandwidths(written.measured).items())[:MOST_COLLECTIVES]:
            yield "a4_run_bus_bandwidth_bytes_per_second", (measured.id, collective), most


def last_over(state: PodState) -> RunSummary | None:
    return state.runs[-1] if state.runs else None


def last_measured(state: PodState) -> RunSummary | None:
    """The last run that is over and measured bandwidths."""
    return next((run for run in reversed(state.runs or ()) if run.workload in MEASURING), None)


def _severities(findings: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many of these, as JSON, are bad, by severity."""
    return dict(Counter(one["severity"] for one in findings if one["state"] == "bad"))


def _bandwidths(result: Mapping[str, Any]) -> dict[str, float]:
    """Collective → bytes per second."""
    most: dict[str, float] = {}
    for sweep in (from_json(Sweep, each) for each in result.get("sweeps", ())):
        measured = [row.busbw for row in sweep.rows if row.busbw is not None]
        if measured:
            most[sweep.collective] = max([most.get(sweep.collective, 0.0), *(1e9 * speed for speed in measured)])
    return most


def label(text: str) -> str:
    """A text as the value of a label, whatever bytes it came from."""
    return visible(text.encode(errors="backslashreplace").decode())[:MOST_LABEL]

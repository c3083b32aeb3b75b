"""What of a pod's state is told to Prometheus, and how many series that is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from agent.decide.ending import JobEnd
from agent.decide.metrics import METRICS, OF_ALL, Written, label, samples
from agent.decide.pod_state import PHASES, Loss, PodState, RecordedEnd, RunSummary
from tests.report.examples import collectives, sweep

LIFECYCLE = Path(__file__).resolve().parents[2] / "agent" / "lifecycle"
UID = "0b4a9e5c-6c1b-4f7e-9a57-1d2c3b4a5f60"
RUN = RunSummary("ddp-1", "ddp", since=1000.0)
OVER = RUN.ended(2000.0, JobEnd(65, "x"))
STATE = PodState("running", 900.0, f"{UID}.2.1", 0, 4, 8, "0.1.0", formed=950.0)
FOUND = [
    {"state": state, "severity": severity, "check": "xid", "pod": 1}
    for state, severity in [
        ("bad", "fatal"),
        ("bad", "fatal"),
        ("bad", "degraded"),
        ("unknown", "fatal"),
        ("ok", "fatal"),
    ]
]


def told(state: PodState | None, **more: Any) -> dict[str, dict[tuple[str, ...], float]]:
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for name, labels, value in samples(Written(state, **more)):
        assert labels not in found.setdefault(name, {})
        found[name][labels] = value
    return found


def only(state: PodState, name: str) -> float | None:
    """The value of a metric without labels but the run's."""
    found = told(state).get(name)
    return None if found is None else next(iter(found.values()))


@pytest.mark.parametrize(
    ("state", "ready", "lost"),
    [
        (STATE._replace(formed=None), 0, 0),
        (STATE._replace(formed=None, missing={1: "DNS", 3: "DNS"}), 2, 0),
        (STATE, 4, 0),
        (STATE._replace(lost={2: Loss("silent", 1.0)}), 3, 1),
        (STATE._replace(pods=1), 1, 0),
    ],
)
def test_pods(state: PodState, ready: int, lost: int) -> None:
    assert (only(state, "a4_job_pods_ready"), only(state, "a4_job_pods_lost")) == (ready, lost)


@pytest.mark.parametrize(
    ("run", "state"),
    [(None, "none"), (RUN, "running"), (RUN._replace(awaits=(2,)), "waiting"), (RUN._replace(awaits=()), "running")],
)
def test_state_of_the_run(run: RunSummary | None, state: str) -> None:
    found = told(STATE._replace(run=run))["a4_run_state"]
    assert [labels for labels, value in found.items() if value] == [(state,)] and len(found) == 3


@pytest.mark.parametrize(
    ("epoch", "restarts"),
    [(f"{UID}.0.0", 0), (f"{UID}.2.1", 3), ("my-job.2.1", None), ("2026.11.29", None), ("", None)],
)
def test_restarts_are_those_that_kubernetes_counts(epoch: str, restarts: int | None) -> None:
    assert only(STATE._replace(epoch=epoch), "a4_job_restarts") == restarts


def test_runs() -> None:
    going = told(STATE._replace(run=RUN._replace(life=3), runs=(OVER,), stuck="circle", printed=1500.0))
    assert going["a4_run_info"] == {("ddp-1", "ddp"): 1}
    assert going["a4_run_restarts"] == {("ddp-1",): 2}
    assert (going["a4_run_hangs"], going["a4_run_output_timestamp_seconds"]) == ({("ddp-1",): 1}, {("ddp-1",): 1500.0})
    assert going["a4_run_exit_code"] == {("ddp-1", "agent"): 65}
    over = told(STATE._replace(runs=(OVER,), idle=2000.0, end=RecordedEnd(7, "x", origin="workload")))
    assert not over.keys() & {"a4_run_hangs", "a4_run_output_timestamp_seconds"}
    assert over["a4_job_exit_code"] == {("workload",): 7}
    assert over["a4_job_idle_timestamp_seconds"] == {(): 2000.0}
    assert "a4_job_idle_timestamp_seconds" not in going


def test_findings_and_bandwidth_of_the_last_run_that_has_them() -> None:
    measured = OVER._replace(id="nccl-7", workload="nccl")
    state = STATE._replace(runs=(OVER._replace(id="nccl-6", workload="nccl"), measured, OVER))
    found = told(state, last={"findings": FOUND}, measured=collectives())
    assert found["a4_run_findings"] == {
        ("ddp-1", "fatal"): 2,
        ("ddp-1", "degraded"): 1,
        ("ddp-1", "information"): 0,
    }
    bandwidths = found["a4_run_bus_bandwidth_bytes_per_second"]
    assert {run for run, _ in bandwidths} == {"nccl-7"}
    for each in collectives()["sweeps"]:
        most = max((row["out_of_place"] or row["in_place"])["busbw"] for row in each["rows"])
        assert bandwidths["nccl-7", each["collective"]] == pytest.approx(most * 1e9)


def full() -> tuple[PodState, dict[str, Any]]:
    """All that can be told at once: the state of a pod 0, and two results."""
    state = STATE._replace(
        phase="running",
        run=RUN,
        runs=(OVER._replace(id="nccl-7", workload="nccl"),),
        end=RecordedEnd(0, "x"),
        idle=1.0,
        printed=2.0,
        findings={"fatal": 1},
    )
    return state, {"last": {"findings": FOUND}, "measured": {"sweeps": [sweep(f"all_{n}") for n in range(40)]}}


def test_a_pod_has_50_series_at_most_and_each_metric_is_in_the_table() -> None:
    state, results = full()
    found = list(samples(Written(state, 1.0, **results)))
    assert len(found) <= 50
    table = {each.name: each.labels for each in METRICS}
    assert {name for name, _, _ in found} == table.keys()
    assert all(len(labels) == len(table[name]) for name, labels, _ in found)
    assert len(table) == len(METRICS) and not set(OF_ALL) & {"job", "pod", "node", "namespace", "instance"}
    assert {name for name in table if not re.fullmatch(r"a4_(agent|pod|job|run)_[a-z_]+", name)} == set()


def test_pods_but_0_tell_nothing_of_the_job() -> None:
    state, results = full()
    found = told(state._replace(index=3), alive=1.0, **results)
    assert {name.split("_")[1] for name in found} == {"agent", "pod"}
    assert told(None) == {} and told(None, alive=3.0) == {"a4_agent_alive_timestamp_seconds": {(): 3.0}}


def test_the_phases_are_those_that_pods_go_through() -> None:
    text = "".join(path.read_text() for path in LIFECYCLE.rglob("*.py"))
    assert set(re.findall(r'\.phase\("(\w+)"', text)) == set(PHASES)


@pytest.mark.parametrize(
    ("text", "shown"), [("é\udcff", "é\\udcff"), ("a\x1b[1m", "a\\x1b[1m"), ("x" * 999, "x" * 200)]
)
def test_any_text_becomes_a_label(text: str, shown: str) -> None:
    assert label(text) == shown

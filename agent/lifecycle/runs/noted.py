"""What every pod notes of the runs that have the cluster for themselves, with its part in them or without."""

from __future__ import annotations

from agent.decide.pod_state import RunSummary
from agent.lifecycle.pod.pod import Pod


def note_run(pod: Pod, summary: RunSummary) -> None:
    """Note that such a run has begun or, with `until` in its summary, ended."""
    if summary.until is None:
        pod.run_logs.begin(summary.id, first=summary.first)
        pod.log.labels["run"] = summary.id
        pod.state.run_begun(summary)
    else:
        pod.log.labels.pop("run", None)
        pod.state.run_ended(summary)

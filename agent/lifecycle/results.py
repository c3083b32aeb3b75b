"""What a run leaves for people: the table on stdout, its log file and result.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agent import __version__
from agent.decide.ending import RESULT_VERSION
from agent.lifecycle.pod import Pod
from agent.lifecycle.running import Run
from agent.workloads.base import Judgement


def keep_results(pod: Pod, run: Run, judgement: Judgement, summary: Mapping[str, Any]) -> None:
    """Show the table and store it: in the pod at once, in the results directory as soon as that takes it."""
    if judgement.text:
        pod.archives.print(judgement.text)
    result = json.dumps(pod.log.masker.value(_result(pod, judgement, summary)), indent=1) + "\n"
    pod.attempt(lambda: pod.machine.write(f"{pod.dir.run(run.run_id)}/result.json", result, 0o600))
    pod.archives.keep("result.json", result)
    if judgement.log_name:
        output = run.lead_output()
        text = f"{judgement.text}\noutput of the run:\n{output}" if output else judgement.text
        pod.archives.keep(judgement.log_name, pod.log.masked(text))


def _result(pod: Pod, judgement: Judgement, summary: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "version": RESULT_VERSION,
        "agent": __version__,
        "job": pod.settings.job_identifier,
        "epoch": pod.settings.epoch,
        "run": summary["id"],
        "workload": summary["workload"],
        "by": summary["by"],
        "since": summary["since"],
        "until": summary["until"],
        "pods": summary["pods"],
        "end": judgement.end.to_json(),
        "plan": pod.plan.to_json() if pod.plan else None,
        "data": judgement.data,
    }

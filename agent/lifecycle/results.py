"""What a run leaves for people: the table on stdout, its log file, result.json and report.html."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent.decide.findings import Findings
from agent.decide.result import PodResult, RunResult
from agent.fabrics.profiles import NONE
from agent.lifecycle.part import PartEnd
from agent.lifecycle.pod import Pod
from agent.lifecycle.reporting import make_report
from agent.lifecycle.running import Run
from agent.workloads.base import Judgement

STARTUP = (
    "agent-started",
    "sshd-listening",
    "facts-ready",
    "coordinator-connected",
    "peers-ready",
    "plan-ready",
)
"""Events that are the same for every run of a cluster."""


def keep_results(pod: Pod, run: Run, judgement: Judgement, summary: Mapping[str, Any]) -> None:
    """Show the table and store it: in the pod at once, in the results directory as soon as that takes it."""
    if judgement.text:
        pod.archives.print(judgement.text)
    result = run_result(pod, run, judgement, summary).to_json()
    text = json.dumps(pod.log.masker.value(result), indent=1) + "\n"
    path = f"{pod.dir.run(run.run_id)}/result.json"
    pod.attempt(lambda: pod.machine.write(path, text, 0o600))
    pod.archives.keep("result.json", text)
    if judgement.log_name:
        output = run.lead_output()
        table = f"{judgement.text}\noutput of the run:\n{output}" if output else judgement.text
        pod.archives.keep(judgement.log_name, pod.log.masked(table))
    for name, content in judgement.files.items():
        if name.startswith("/") and name not in run.context.baselines and pod.machine.exists(name):
            # Nobody has read what is in it, so that it would be lost.
            pod.log.warning(f"{name} is there already and left as it is: A4_BASELINES={name} would add to it")
        else:
            _keep_file(pod, name, pod.log.masked(content))
    if pod.settings.report and run.workload.kind != "nothing":
        make_report(pod, path)


def _keep_file(pod: Pod, name: str, text: str) -> None:
    if not name.startswith("/"):
        pod.archives.keep(name, text)
        return
    try:
        pod.machine.write(name, text)
    except OSError as error:
        pod.log.warning(f"{name} cannot be written: {error.strerror}")


def run_result(pod: Pod, run: Run, judgement: Judgement, summary: Mapping[str, Any]) -> RunResult:
    """All that is known of a run that is over."""
    lead = run.ends.get(run.context.lead, PartEnd())
    return RunResult(
        job=pod.settings.job_identifier,
        epoch=pod.settings.epoch,
        run=run.run_id,
        spec=run.context.spec,
        since=summary["since"],
        until=summary["until"],
        end=judgement.end,
        plan=run.context.plan,
        pods={index: _pod_result(pod, run, index) for index in run.indices},
        differences=run.preparations.compared(run.context, run.workload),
        launch=lead.launch,
        findings=_with_profile(pod, judgement.findings),
    )


def _with_profile(pod: Pod, findings: Findings) -> Findings:
    if findings.profile is not None or pod.profile.name == NONE:
        return findings
    return replace(findings, profile={"name": pod.profile.name, "why": pod.profile.why})


def _pod_result(pod: Pod, run: Run, index: int) -> PodResult:
    end = run.ends.get(index, PartEnd())
    known = pod.phases if index == 0 else run.preparations.phases.get(index, {})
    own = {"process-started": end.began, "process-ended": end.ended}
    phases = {name: known[name] for name in STARTUP if name in known}
    return PodResult(
        status=end.status,
        lost=run.lost.get(index, ""),
        phases={**phases, **{name: when for name, when in own.items() if when is not None}},
        inventory=run.preparations.inventories.get(index, {}),
    )

"""What a run leaves for people: the table on stdout, its log file and result.json."""

from __future__ import annotations

import json
from typing import Any

from agent import __version__
from agent.decide.ending import RESULT_VERSION
from agent.errors import DirectoryUnusable
from agent.lifecycle.pod import Pod
from agent.workloads.base import Judgement


def check_results_dir(pod: Pod) -> None:
    """Raises DirectoryUnusable when results could not be stored later."""
    directory = pod.settings.results_dir
    probe = f"{directory}/.a4-agent-probe"
    try:
        pod.machine.make_dir(directory)
        pod.machine.write(probe, "")
        pod.machine.remove(probe)
    except OSError as error:
        raise DirectoryUnusable(
            f"A4_RESULTS_DIR={directory} cannot be written: {error.strerror}", "mount it, or set another one"
        ) from error


def keep_results(pod: Pod, run_id: str, judgement: Judgement) -> None:
    """Show the table and store it; a full disk costs the file, not the job's code."""
    if judgement.text:
        pod.machine.emit(1, judgement.text.encode(errors="backslashreplace"))
    directory = pod.settings.results_dir
    run_dir = pod.dir.run(run_id)
    result = pod.log.masked(json.dumps(_result(pod, run_id, judgement), indent=1) + "\n")
    output = pod.machine.read(f"{run_dir}/output.log") or ""
    try:
        pod.machine.write(f"{run_dir}/result.json", result)
        pod.machine.write(f"{directory}/result.json", result)
        if judgement.log_name:
            text = f"{judgement.text}\noutput of the run:\n{output}" if output else judgement.text
            pod.machine.write(f"{directory}/{judgement.log_name}", pod.log.masked(text))
    except OSError as error:
        pod.log.error(f"the results could not be stored in {directory}: {error.strerror}")


def _result(pod: Pod, run_id: str, judgement: Judgement) -> dict[str, Any]:
    return {
        "version": RESULT_VERSION,
        "agent": __version__,
        "job": pod.settings.job_identifier,
        "epoch": pod.settings.epoch,
        "run": run_id,
        "workload": pod.settings.workload,
        "end": judgement.end.to_json(),
        "plan": pod.plan.to_json() if pod.plan else None,
        "data": judgement.data,
    }

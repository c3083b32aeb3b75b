"""What was read in a pod, made smaller: texts of programs and of the kernel become values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.decide.inventory import fabric_variables
from agent.health.doctor import nvidia_smi, xids


def reduced(raw: Mapping[str, Any], environ: Mapping[str, str], slots: int, run: str) -> dict[str, Any]:
    """What checks look at: `raw` as agent.machine.health.pod_readings gives it, and what the agent knows of the pod.

    `environ` is that of its workloads, `run` the run that has the cluster.
    """
    found = {**raw, "environment": fabric_variables(environ), "slots": slots, "run": run}
    if (text := found.pop("nvidia_smi", None)) is not None:
        try:
            found["gpus"] = nvidia_smi.parse(text)
        except ValueError as error:
            found["problems"] = {**found.get("problems", {}), "gpus": str(error)}
    if (text := found.pop("nvidia_smi_nvlink", None)) is not None:
        found["nvlinks"] = nvidia_smi.parse_links(text)
    if (log := found.pop("kernel_log", None)) is not None:
        found["xids"] = xids.parse(log["records"], log["uptime"], 60.0 * xids.MINUTES)
    return found

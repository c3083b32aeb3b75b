"""What was read in a pod, made smaller: texts of programs and of the kernel become values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agent.clinic.doctor import nvidia_smi, xids
from agent.clinic.doctor.deltas import STATES
from agent.decide.inventory import fabric_variables

NVLINK_COUNTERS = {
    "Replay Errors": "nvlink_replay",
    "Recovery Errors": "nvlink_recovery",
    "CRC Errors": "nvlink_crc",
    "Total link recovery events": "nvlink_recovery",
    "Link recovery failed events": "nvlink_recovery_failed",
    "Symbol Errors": "nvlink_symbol",
}
"""By the names in `nvidia-smi nvlink -e`: the first three as driver 580 has them for an H200, the others as driver
595.91 has them for a B300, by a published capture."""
NVLINK = re.compile(rf"^GPU (\d+):|^\s*Link \d+: ({'|'.join(NVLINK_COUNTERS)}): (\d+)", re.MULTILINE)


def readings_of(raw: Mapping[str, Any], environ: Mapping[str, str], slots: int, run: str) -> dict[str, Any]:
    """What checks look at: `raw` as agent.clinic.probes.pod_readings gives it, and what the agent knows of the pod.

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


def reduced(raw: Mapping[str, Any]) -> dict[str, Any]:
    """What read_counters of agent.clinic.probes.pod_readings gives, as numbers and states; it is asked for in a child,
    as parsing takes its time."""
    problems = dict(raw.get("problems", {}))
    found: dict[str, Any] = {"uptime": raw["uptime"], "counters": dict(raw.get("nics", {})), "states": {}}
    try:
        gpus = _gpus(raw["nvidia_smi"], raw.get("nvlink", "")) if "nvidia_smi" in raw else {}
    except ValueError as error:
        gpus, problems["gpus"] = {}, str(error)
    if "Link 0:" in raw.get("nvlink", "") and not _links(raw["nvlink"]).get(0):
        problems["nvlink"] = "nvidia-smi nvlink -e counts errors that are not known here"
    for device, (counters, states) in gpus.items():
        found["counters"][device], found["states"][device] = counters, states
    log = raw.get("kernel_log")
    found["xids"] = xids.parse(log["records"], log["uptime"], log["uptime"]) if log else []
    return {**found, "problems": problems}


def _gpus(text: str, nvlink: str) -> dict[str, tuple[dict[str, float], dict[str, str]]]:
    """Counters and states by GPU; what nvidia-smi does not say is left out. Raises ValueError."""
    links = _links(nvlink)
    found = {}
    for gpu in nvidia_smi.parse(text):
        counters = {name: gpu[name] for name in ("uncorrected", "hw_therm_slowdown", "hw_power_brake")}
        # The number in /dev: where one GPU is lost, those after it have another index.
        number = gpu["index"] if gpu["minor"] is None else gpu["minor"]
        states = {state: gpu[state] for state in STATES}
        found[f"GPU {number}"] = (_known({**counters, **links.get(gpu["index"], {})}), _known(states))
    return found


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _links(text: str) -> dict[int, dict[str, float]]:
    """Errors of all links together, by index of the GPU."""
    found: dict[int, dict[str, float]] = {}
    counters: dict[str, float] = {}
    for gpu, kind, count in NVLINK.findall(text):
        if gpu:
            counters = found.setdefault(int(gpu), {})
        else:
            name = NVLINK_COUNTERS[kind]
            counters[name] = counters.get(name, 0) + int(count)
    return found

"""What is looked at in one pod: each check is a function and a row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from agent.clinic.doctor import nccl_diag, xids
from agent.clinic.doctor.nccl_versions import hangs_of
from agent.decide.facts import Finding, Severity, State
from agent.decide.leaving_out import report_node
from agent.decide.words import size_text

Readings = Mapping[str, Any]
"""What was read in one pod (`readings_of` in agent/clinic/doctor/counted.py). `problems`: part → why it could not be
read."""
SHARED_MEMORY = 8 << 30
LOCKED_MEMORY = 32 << 30
FULL_PERCENT = 95
SLOW_NAME_SECONDS = 1.0
UNCORRECTED_EVER = 4
CLOCK_SECONDS = 0.1
IDLE_MIB = 100
"""Memory in use on a GPU that is idle: 0 to some MiB. A process that computes takes hundreds."""
NVLINKS = {"NVIDIA B200": 18, "NVIDIA H200": 18, "NVIDIA H100 80GB HBM3": 18}
"""Links of each GPU to the NVSwitches; other forms of these GPUs have other names."""
LANES = dict.fromkeys(NVLINKS, 16)
"""Lanes of PCIe of each GPU. What nvidia-smi calls the most is also what its slot allows."""
ACCELERATORS = {
    "nvidia-b200": ("B200", 180_000), "nvidia-h200-141gb": ("H200", 140_000), "nvidia-h100-80gb": ("H100", 80_000),
    "nvidia-h100-mega-80gb": ("H100", 80_000),
}  # fmt: skip
"""GKE's name of an accelerator → in the GPU's name, and MiB of memory that it has at least."""
BLACKWELL = "B200"
BLACKWELL_DRIVER, BLACKWELL_CUDA = "570.133.20", "12.8"
RESET = "drain the node and reset the GPU or restart the node"
REPORT_XID = f"{RESET}; {{xid}}"
REPORT_SLOW = "{slow}"
"""`action_text` puts the commands in."""


class Observation(NamedTuple):
    """What a check saw of a pod, or of one of its devices."""

    value: str
    good: bool | None
    """None: it could not be seen; `value` says why."""
    device: str = ""
    severity: Severity | None = None
    """Where it is not that of the check."""


Look = Callable[[Readings], Iterator[Observation]]
UNSAID = Observation("nvidia-smi does not say it", None)


class HealthCheck(NamedTuple):
    """A row of docs/doctor.md."""

    name: str
    part: str
    """of the readings; where it could not be read, neither can this be seen"""
    applies: Callable[[Readings], bool]
    look: Look
    limit: str
    severity: Severity
    source: str
    action: str
    """`action_text` says it of a node"""


def examine(readings: Readings, pod: int, node: str) -> list[Finding]:
    """What all checks that apply to this pod see."""
    return [finding for check in CHECKS if check.applies(readings) for finding in _findings(check, readings, pod, node)]


def action_text(action: str, node: str) -> str:
    return action.format(xid=report_node(node, "XID"), slow=report_node(node, "PERFORMANCE"))


def _findings(check: HealthCheck, readings: Readings, pod: int, node: str) -> Iterator[Finding]:
    problem = readings.get("problems", {}).get(check.part)
    seen = [Observation(problem, None)] if problem else list(check.look(readings))
    for one in seen or [Observation("nothing says it", None)]:
        state: State = "unknown" if one.good is None else "ok" if one.good else "bad"
        severity, action = one.severity or check.severity, action_text(check.action, node)
        yield Finding(check.name, state, severity, pod, node, one.device, one.value, check.limit, check.source, action)


def has_gpus(readings: Readings) -> bool:
    """Device files, or a driver that should have made some."""
    return bool(readings.get("gpu_files") or readings.get("driver"))


def has_rdma(readings: Readings) -> bool:
    return bool(readings.get("rdma"))


def _count(readings: Readings) -> Iterator[Observation]:
    there, wanted = readings["gpu_files"], readings["slots"]
    yield Observation(f"{there} of {wanted}", there >= wanted)


def _of_each(part: str, see: Callable[[Mapping[str, Any]], Observation | None]) -> Look:
    """What is seen of each GPU in that part of the readings; None: nothing is to be seen of it."""

    def look(readings: Readings) -> Iterator[Observation]:
        for gpu in readings[part]:
            if seen := see(gpu):
                yield seen._replace(device=f"GPU {gpu['index']}")

    return look


def _gpu_value(key: str, is_good: Callable[[Any], bool]) -> Look:
    """A check of one value of each GPU; where nvidia-smi does not give it, it could not be seen."""

    def see(gpu: Mapping[str, Any]) -> Observation:
        value = gpu[key]
        text = ", ".join(value) if isinstance(value, list) else str(value)
        return UNSAID if value is None else Observation(text or "none", is_good(value))

    return _of_each("gpus", see)


def _lanes(gpu: Mapping[str, Any]) -> Observation | None:
    lanes, most = gpu["lanes"], LANES.get(gpu["name"])
    if most is None:
        return None
    return UNSAID if lanes is None else Observation(f"{lanes} of {most} lanes", lanes >= most)


def _fabric(gpu: Mapping[str, Any]) -> Observation | None:
    """GPUs without NVSwitch have none."""
    state, status = gpu["fabric"], gpu["fabric_status"]
    if state is None:
        return None
    return Observation(f"{state}, {status}" if status else state, state == "Completed" and status in (None, "Success"))


def _if_any(test: Callable[[Mapping[str, Any]], bool]) -> Callable[[Readings], bool]:
    """Where some GPU is such a one, or none could be read."""

    def applies(readings: Readings) -> bool:
        gpus = readings.get("gpus")
        return has_gpus(readings) if gpus is None else any(map(test, gpus))

    return applies


def _has_two(readings: Readings) -> bool:
    """A GPU that is alone has nobody to be linked to."""
    return bool(readings.get("gpu_files", 0) > 1)


def _has_nvlinks(readings: Readings) -> bool:
    return _has_two(readings) and _if_any(lambda gpu: gpu["name"] in NVLINKS)(readings)


def _nvlinks(gpu: Mapping[str, Any]) -> Observation | None:
    most = NVLINKS.get(gpu["name"])
    return Observation(f"{gpu['up']} of {most} links", gpu["up"] == most) if most else None


def _model(readings: Readings) -> Iterator[Observation]:
    name, least = ACCELERATORS[readings["accelerator"]]
    if not has_gpus(readings):
        yield Observation("neither a GPU nor a driver", False)
        return
    for gpu in readings["gpus"]:
        memory = re.match(r"\d+", gpu["memory"] or "")
        if gpu["name"] is None or memory is None:
            yield UNSAID._replace(device=f"GPU {gpu['index']}")
        else:
            good = name in gpu["name"] and int(memory[0]) >= least
            yield Observation(f"{gpu['name']}, {gpu['memory']}", good, f"GPU {gpu['index']}")


def _driver(readings: Readings) -> Iterator[Observation]:
    driver, cuda = readings["driver"], readings["gpus"][0]["cuda"] or ""
    if not (_numbers(driver) and _numbers(cuda)):
        yield UNSAID
        return
    good = _numbers(driver) >= _numbers(BLACKWELL_DRIVER) and _numbers(cuda) >= _numbers(BLACKWELL_CUDA)
    yield Observation(f"{driver} with CUDA {cuda}", good)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def _fabric_usable(readings: Readings) -> Iterator[Observation]:
    found = readings["fabric"]
    yield from (Observation(problem, False) for problem in found)
    if not found:
        yield Observation("can be used", True)


def _nccl(readings: Readings) -> Iterator[Observation]:
    probe = readings["nccl"]
    if probe["unknown"]:
        yield Observation(probe["unknown"], None)
    for line in nccl_diag.parse(probe["output"]):
        yield Observation(line.text, line.good, line.check, line.severity)


def _nccl_version(readings: Readings) -> Iterator[Observation]:
    torch = readings["torch"]
    nccl = torch.get("nccl", {"problem": "torch names no NCCL"})
    version = nccl.get("version", "")
    if not version:
        yield Observation(torch.get("problem") or nccl.get("problem") or "NCCL does not say its version", None)
        return
    known = "; ".join(f"{one.what} ({one.source})" for one in hangs_of(version))
    yield Observation(f"{version}: {known}" if known else version, not known)


def _clock(readings: Readings) -> Iterator[Observation]:
    """The answer was on its way for a time, half of which is the least that is not known of the offset."""
    clock = readings["clock"]
    if not clock:
        yield Observation("the pod did not say within 0.5 s what time it is", None)
        return
    offset, unsure = clock["offset"], clock["trip"] / 2
    if unsure > CLOCK_SECONDS and abs(offset) - unsure <= CLOCK_SECONDS:
        yield Observation(f"the quickest of its answers took {clock['trip']:.1f} s", None)
    else:
        words = f"{offset:+.3f} s from that of pod 0, ± {unsure:.3f} s"
        yield Observation(words, abs(offset) - unsure <= CLOCK_SECONDS)


def _processes(gpu: Mapping[str, Any]) -> Observation:
    """A container with PIDs of its own is not told of other containers' processes, but of the memory that they have."""
    listed, used = gpu["processes"], gpu["used"]
    if listed:
        return Observation(str(listed), False)
    if used is None:
        return Observation("nvidia-smi does not say what memory is in use", None)
    return Observation(f"none is listed, and {used} MiB are in use", used < IDLE_MIB)


def _is_idle(readings: Readings) -> bool:
    return has_gpus(readings) and not readings.get("run")


def _xids(readings: Readings) -> Iterator[Observation]:
    found = [xids.Xid(*one) for one in readings["xids"]]
    if not found:
        yield Observation("none", True)
    for one in found:
        words = f"{one.name} {one.seconds_ago:.0f} s ago: {one.text}"
        yield Observation(words, one.number in xids.PROGRAMS, one.device, xids.severity(one.number, one.text))


def _computes(probe: Mapping[str, Any]) -> Observation:
    unknown, problem = probe["unknown"], probe["problem"]
    return Observation(unknown, None) if unknown else Observation(problem or "a correct product", not problem)


def _ports(readings: Readings) -> Iterator[Observation]:
    for device in readings["rdma"]:
        for port in device["ports"]:
            state, where = port["state"], f"{device['name']}/{port['port']}"
            if state:
                yield Observation(state, state == "ACTIVE", where)
            else:
                yield Observation("its state cannot be read", None, where)


def _shared_memory(readings: Readings) -> Iterator[Observation]:
    shm = readings["shm"]
    size = shm["size"] if shm else 0
    yield Observation(size_text(size) if shm else "it is missing", size >= SHARED_MEMORY)


def _locked_memory(readings: Readings) -> Iterator[Observation]:
    soft = readings["limits"]["memlock"][0]
    if isinstance(soft, str):
        yield Observation(soft, True)
    else:
        yield Observation(size_text(soft), soft >= LOCKED_MEMORY)


def _disks(readings: Readings) -> Iterator[Observation]:
    for disk in readings["disks"]:
        if disk["problem"]:
            yield Observation(disk["problem"], None, disk["path"])
            continue
        for what in ("bytes", "files"):
            if disk[what]:
                percent = 100 * (1 - disk[f"{what}_free"] / disk[what])
                # Floored: 94.9 % is not shown as 95 %.
                yield Observation(f"{int(percent)} % of its {what} used", percent < FULL_PERCENT, disk["path"])


def _names(readings: Readings) -> Iterator[Observation]:
    bad = [name for name in readings["names"] if name["problem"] or name["seconds"] >= SLOW_NAME_SECONDS]
    for name in bad:
        yield Observation(name["problem"] or f"{name['seconds']:.1f} s", False, name["name"])
    if not bad:
        slowest = max((name["seconds"] for name in readings["names"]), default=0.0)
        yield Observation(f"{len(readings['names'])} names, the slowest in {slowest * 1000:.0f} ms", True)


CHECKS = (
    HealthCheck("GPUs", "resources", has_gpus, _count, "as many as GPUS_PER_NODE", "fatal", "Google's aicr#1858",
                f"nvidia-smi -L names those that are left; {REPORT_XID}"),
    HealthCheck("GPU model", "gpus", lambda readings: readings.get("accelerator") in ACCELERATORS, _model,
                "what A4_ACCELERATOR names", "fatal", "sichek", "give the job nodes of that accelerator"),
    HealthCheck("driver of B200", "gpus", _if_any(lambda gpu: BLACKWELL in (gpu["name"] or "")), _driver,
                f"{BLACKWELL_DRIVER} with CUDA {BLACKWELL_CUDA}, or later", "degraded", "sichek",
                "give the job nodes with a later gpu-driver-version"),
    HealthCheck("GPU recovery action", "gpus", has_gpus, _gpu_value("recovery", lambda value: value == "None"),
                "None", "fatal", "NVIDIA NVRx", REPORT_XID),
    HealthCheck("GPU memory errors", "gpus", has_gpus, _gpu_value("uncorrected", lambda value: value == 0),
                "no uncorrected one since the driver was loaded", "degraded", "sichek", RESET),
    HealthCheck("GPU memory errors ever", "gpus", has_gpus,
                _gpu_value("uncorrected_ever", lambda value: value <= UNCORRECTED_EVER),
                f"{UNCORRECTED_EVER} uncorrected ones at most", "degraded", "sichek", REPORT_XID),
    HealthCheck("GPU memory rows to be replaced", "gpus", has_gpus,
                _gpu_value("remap_pending", lambda value: value == "No"), "none", "degraded", "sichek", RESET),
    HealthCheck("GPU memory rows that cannot be replaced", "gpus", has_gpus,
                _gpu_value("remap_failure", lambda value: value == "No"), "none", "fatal", "sichek", REPORT_XID),
    HealthCheck("GPU clock", "gpus", has_gpus, _gpu_value("slow", lambda value: not value),
                "not held down by the hardware", "degraded", "NVIDIA", REPORT_SLOW),
    HealthCheck("GPU PCIe link", "gpus", _if_any(lambda gpu: gpu["name"] in LANES), _of_each("gpus", _lanes),
                "all its lanes", "degraded", "IBM autopilot, sichek", REPORT_SLOW),
    HealthCheck("NVLinks", "nvlinks", _has_nvlinks, _of_each("nvlinks", _nvlinks), "all links with a speed", "fatal",
                "sichek, NVIDIA NCCL", REPORT_XID),
    HealthCheck("NVLink fabric", "gpus", _if_any(lambda gpu: gpu["fabric"] is not None),
                _of_each("gpus", _fabric), "Completed, Success", "fatal", "NVIDIA",
                f"look for the fabric manager in the node's log; {REPORT_XID}"),
    HealthCheck("GPU processes", "gpus", _is_idle, _of_each("gpus", _processes),
                f"none, and less than {IDLE_MIB} MiB in use, while no run has the cluster", "information", "AMD Primus",
                "nvidia-smi names them on the node; another pod there, or what an earlier run has left"),
    HealthCheck("XIDs", "xids", has_gpus, _xids, f"none in {xids.MINUTES} minutes", "fatal", xids.SOURCE, REPORT_XID),
    HealthCheck("GPU computes", "probes", has_gpus, _of_each("probes", _computes), "a correct product within 15 s",
                "fatal", "AMD Primus", REPORT_XID),
    HealthCheck("NCCL's diagnostics", "nccl", _has_two, _nccl, "no [INFO] from NCCL of a fault",
                "degraded", "NVIDIA NCCL", "read the line: it is NCCL's own"),
    HealthCheck("NCCL version", "torch", has_gpus, _nccl_version, "none that is known to hang silently", "information",
                "NVIDIA NCCL", "if runs hang so, set NCCL_LOCAL_REGISTER=0 and NCCL_GRAPH_REGISTER=0, or take a later "
                "NCCL"),
    HealthCheck("RDMA ports", "nics", has_rdma, _ports, "ACTIVE", "fatal", "NVIDIA NVSentinel",
                f"look at the port with ibstat on the node; {REPORT_SLOW}"),
    HealthCheck("fabric", "libraries", lambda readings: "fabric" in readings, _fabric_usable,
                "the plugin of the profile loads, and its devices are there", "fatal", "a4-agent",
                "fix the image or the node, or start the job with A4_PROFILE=none, which uses no fabric"),
    HealthCheck("/dev/shm", "resources", has_gpus, _shared_memory, f"{size_text(SHARED_MEMORY)} or more", "degraded",
                "AMD Primus", "set the chart's volumes.sharedMemory, or mount an emptyDir of medium Memory there"),
    HealthCheck("memory that can be locked", "resources", has_rdma, _locked_memory,
                f"{size_text(LOCKED_MEMORY)} or more", "degraded", "imbue", "run the container privileged or with "
                "IPC_LOCK, and raise the container runtime's LimitMEMLOCK on the node"),
    HealthCheck("disk space", "disks", lambda readings: True, _disks, f"less than {FULL_PERCENT} % used", "degraded",
                "AMD Primus", "remove what is not needed, or set A4_RESULTS_DIR to another directory"),
    HealthCheck("clock", "clock", lambda readings: "clock" in readings, _clock,
                f"within {CLOCK_SECONDS:g} s of that of pod 0", "degraded", "AMD Primus",
                "look at the node's time service: chronyc tracking"),
    HealthCheck("names of peers", "names", lambda readings: bool(readings.get("names")), _names,
                f"found within {SLOW_NAME_SECONDS:g} s", "degraded", "a4-agent",
                "look at the cluster's DNS: kubectl get pods --namespace kube-system"),
)  # fmt: skip

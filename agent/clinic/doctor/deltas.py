"""What changed in a pod's devices during a run. Only differences are judged: what a counter has counted since the
driver was loaded says nothing about this run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agent.clinic.doctor import xids
from agent.clinic.doctor.checks import REPORT_SLOW, REPORT_XID, action_text
from agent.decide.facts import Finding, Severity
from agent.decide.subset import pods_text
from agent.decide.words import count_text

Counted = Mapping[str, Any]
"""One reading (agent/clinic/doctor/counted.py): `uptime`; `counters` and `states`, by device and name; `xids`;
`problems`."""
CABLES = f"look at the port and its cable on the node; {REPORT_SLOW}"
NVSENTINEL, DCGM = "NVIDIA NVSentinel", "NVIDIA DCGM"
LOST = re.compile(r"GPU is lost|fallen off the bus")
"""What nvidia-smi says of a GPU that does not answer any more."""
MOST_FINDINGS = 100
"""How many one pod tells; a message has a limit."""
LOOKED = "devices during the run"


class DeltaCheck(NamedTuple):
    """A row of docs/doctor.md: a counter, and how much it may grow."""

    name: str
    counter: str
    most: float
    """in `per` seconds, or in the whole run"""
    per: float
    severity: Severity
    source: str
    action: str
    full: float = 0
    """where the counter stays when it is full; 0: never"""
    unit: str = ""

    @property
    def limit(self) -> str:
        every = {0.0: "in a run", 1.0: "a second", 60.0: "a minute"}[self.per]
        return f"{self.most:g}{self.unit} {every} at most" if self.most else "none"


COUNTERS = (
    DeltaCheck("RDMA link went down", "link_downed", 0, 0, "fatal", NVSENTINEL, CABLES, 255),
    DeltaCheck("RDMA link integrity errors", "local_link_integrity_errors", 0, 0, "fatal", NVSENTINEL, CABLES, 15),
    DeltaCheck("RDMA buffer overruns", "excessive_buffer_overrun_errors", 0, 0, "fatal", NVSENTINEL, CABLES, 15),
    DeltaCheck("RDMA receivers never ready", "rnr_nak_retry_err", 0, 0, "fatal", NVSENTINEL, CABLES),
    DeltaCheck("RDMA symbol errors", "symbol_error", 10, 1, "degraded", NVSENTINEL, CABLES, 65535),
    DeltaCheck("RDMA packets discarded", "port_xmit_discards", 100, 1, "degraded", NVSENTINEL, CABLES, 65535),
    DeltaCheck("RDMA slow restarts", "roce_slow_restart", 10, 1, "degraded", NVSENTINEL, CABLES),
    DeltaCheck("RDMA receive errors", "port_rcv_errors", 10, 1, "degraded", NVSENTINEL, CABLES, 65535),
    DeltaCheck("RDMA acknowledgements late", "local_ack_timeout_err", 1, 1, "degraded", NVSENTINEL, CABLES),
    DeltaCheck("RDMA link recoveries", "link_error_recovery", 5, 60, "degraded", NVSENTINEL, CABLES, 255),
    DeltaCheck("carrier changes", "carrier_changes", 2, 0, "degraded", NVSENTINEL, CABLES),
    DeltaCheck("GPU memory errors", "uncorrected", 0, 0, "degraded", "sichek", REPORT_XID),
    DeltaCheck("NVLink replays", "nvlink_replay", 0, 0, "degraded", DCGM, REPORT_XID),
    DeltaCheck("NVLink recoveries", "nvlink_recovery", 0, 0, "degraded", DCGM, REPORT_XID),
    DeltaCheck("NVLink CRC errors", "nvlink_crc", 100, 1, "degraded", DCGM, REPORT_XID),
    DeltaCheck("NVLink recoveries that failed", "nvlink_recovery_failed", 0, 0, "fatal", "a4-agent", REPORT_XID),
    DeltaCheck("NVLink symbol errors", "nvlink_symbol", 100, 1, "degraded", "a4-agent", REPORT_XID),
    DeltaCheck("GPU too hot", "hw_therm_slowdown", 10, 1, "degraded", "a4-agent", REPORT_SLOW, unit=" ms"),
    DeltaCheck("GPU power brake", "hw_power_brake", 10, 1, "degraded", "a4-agent", REPORT_SLOW, unit=" ms"),
)
STATES = {
    "recovery": Finding(
        "GPU recovery action", "bad", "fatal", -1, limit="None", source="NVIDIA NVRx", action=REPORT_XID
    ),
    "remap_pending": Finding(
        "GPU memory rows to be replaced", "bad", "degraded", -1, limit="No", source="sichek", action=REPORT_XID
    ),
    "remap_failure": Finding(
        "GPU memory rows that cannot be replaced", "bad", "fatal", -1, limit="No", source="sichek", action=REPORT_XID
    ),
}
"""What is found where a GPU says anything else than the limit after a run; `compare` says of which pod."""
GONE = Finding("GPU gone", "bad", "fatal", -1, limit="all GPUs of the start", source="a4-agent", action=REPORT_XID)


def counters_argv(python: str, environ: Mapping[str, str], seconds: float) -> list[str]:
    """The process that prints one reading as a line of JSON. It keeps to `seconds`, and may be a little late.

    environ: variables with which nvidia-smi finds itself and its library
    """
    return [python, "-Es", "-m", "agent.clinic.probes.counters", json.dumps(dict(environ)), str(seconds)]


def gpu_memory_argv(python: str, environ: Mapping[str, str], seconds: float) -> list[str]:
    """The process that prints which GPUs have memory in use, as a line of JSON. It keeps to `seconds`, as above."""
    return [python, "-Es", "-m", "agent.clinic.probes.gpu_memory", json.dumps(dict(environ)), str(seconds)]


def compare(before: Counted, after: Counted, pod: int, node: str) -> tuple[Finding, ...]:
    """What is bad or could not be seen, the worst first; if nothing is, one finding that says what was looked at."""
    seconds = max(1.0, after["uptime"] - before["uptime"])
    found = [*_problems(before, after), *_new_xids(after, seconds), *_changed(before, after)]
    for check in COUNTERS:
        found += _grown(check, before, after, seconds)
    if not found:
        devices = count_text(len(before["counters"]), "device")
        value = f"nothing on {devices} in {seconds:.0f} s"
        return (Finding(LOOKED, "ok", "information", pod, node, value=value),)
    rank = {"fatal": 0, "degraded": 1, "information": 2}
    found.sort(key=lambda one: (one.state != "bad", rank[one.severity]))
    placed = [one._replace(pod=pod, node=node, action=action_text(one.action, node)) for one in found]
    return tuple(placed[:MOST_FINDINGS])


def unseen(why: str, pod: int, node: str) -> tuple[Finding, ...]:
    """Why nothing could be compared."""
    return (Finding(LOOKED, "unknown", "information", pod, node, value=why),)


def _problems(before: Counted, after: Counted) -> Iterator[Finding]:
    names = {"gpus": "GPUs", "nvlink": "NVLink", "xids": "XIDs", "nics": "network devices"}
    for part, why in {**before["problems"], **after["problems"]}.items():
        if part not in before["problems"] and LOST.search(why):
            yield GONE._replace(value=why)
        else:
            yield Finding(names.get(part, part), "unknown", "information", -1, value=why)


def _new_xids(after: Counted, seconds: float) -> Iterator[Finding]:
    for one in (xids.Xid(*each) for each in after["xids"]):
        if one.seconds_ago <= seconds and one.number not in xids.PROGRAMS:
            severity, value = xids.severity(one.number, one.text), f"{one.name}: {one.text}"
            yield Finding("XIDs", "bad", severity, -1, "", one.device, value, "none", xids.SOURCE, REPORT_XID)


def _changed(before: Counted, after: Counted) -> Iterator[Finding]:
    """States of GPUs, and GPUs that are not there any more."""
    for device, old in before["states"].items():
        new = after["states"].get(device)
        if new is None:
            if "gpus" not in after["problems"]:
                yield GONE._replace(device=device, value="nvidia-smi shows it no longer")
            continue
        for state, found in STATES.items():
            value, was = new.get(state, found.limit), old.get(state, "unknown")
            if value != found.limit:
                words = f"{value}, before the run as well" if value == was else f"{value}, before the run {was}"
                yield found._replace(device=device, value=words)


def _grown(check: DeltaCheck, before: Counted, after: Counted, seconds: float) -> Iterator[Finding]:
    for device, counters in before["counters"].items():
        if check.counter not in counters or device not in after["counters"]:
            continue
        found = Finding(check.name, "bad", check.severity, -1, "", device, "", check.limit, check.source, check.action)
        old, new = counters[check.counter], after["counters"][device].get(check.counter)
        why = (
            "not there any more" if new is None
            else "set back during the run" if new < old
            else f"full at {check.full:g} before the run" if check.full and old >= check.full
            else ""
        )  # fmt: skip
        if why:
            yield found._replace(state="unknown", value=f"its counter was {why}")
            continue
        grown = (new or 0) - old
        if grown > check.most * (seconds / check.per if check.per else 1):
            yield found._replace(value=f"{grown:g}{check.unit} in {seconds:.0f} s")


def health_sentence(findings: Sequence[Finding]) -> str:
    """What is bad in one line; empty when nothing is."""
    bad = [one for one in findings if one.state == "bad" and one.severity != "information"]
    if not bad:
        return ""
    worst = min(bad, key=lambda one: one.severity != "fatal")
    device = f"{worst.device} of " if worst.device else ""
    node = f", node {worst.node}" if worst.node else ""
    more = f"; {len(bad) - 1} more on {pods_text(one.pod for one in bad)}" if len(bad) > 1 else ""
    return (
        f"health during the run: {worst.severity}: {worst.check}: {worst.value} on {device}pod {worst.pod}{node}{more}"
    )

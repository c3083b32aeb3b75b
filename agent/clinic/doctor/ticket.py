"""What a provider's ticket asks for, in words: where a pod is, its GPUs, their XIDs, and what a run found out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agent.clinic.doctor import nvidia_smi, xids
from agent.clinic.doctor.counted import reduced
from agent.clinic.doctor.deltas import COUNTERS
from agent.decide.plan import pod_text
from agent.decide.result import Result

Clock = Callable[[float], str]
"""Seconds since 1970 as text."""


def pod_ticket(counted: Mapping[str, Any], kernel_log: Mapping[str, Any] | None, now: float, utc: Clock) -> str:
    """The lines about one pod. `counted`: as read_counters of agent.clinic.probes.pod_readings gives it; `now`: seconds
    since 1970."""
    lines = [*_gpus(counted), *_xids(kernel_log, now, utc), *_counters(counted)]
    return "".join(f"  {line}\n" for line in lines)


def _gpus(counted: Mapping[str, Any]) -> Iterator[str]:
    if "nvidia_smi" not in counted:
        yield f"GPUs: {counted.get('problems', {}).get('gpus', 'none')}"
        return
    try:
        driver, gpus = nvidia_smi.identities(counted["nvidia_smi"])
    except ValueError as error:
        yield f"GPUs: {error}"
        return
    yield ", ".join(f"{name} {value or 'not known'}" for name, value in driver.items())
    for index, gpu in enumerate(gpus):
        yield f"GPU {index}: " + ", ".join(f"{name} {value or 'not known'}" for name, value in gpu.items())


def _xids(kernel_log: Mapping[str, Any] | None, now: float, utc: Clock) -> Iterator[str]:
    if kernel_log is None:
        yield "XIDs: the kernel log cannot be read in this pod; on the node: dmesg -T | grep -i xid"
        return
    found = xids.parse(kernel_log["records"], kernel_log["uptime"], math.inf)
    yield from (f"{utc(now - one.seconds_ago)} {one.name} on {one.device}: {one.text}" for one in found)
    if not found:
        yield "XIDs: none in the kernel log"


def _counters(counted: Mapping[str, Any]) -> Iterator[str]:
    """Those that count errors and have counted some."""
    names = {check.counter: check.name for check in COUNTERS}
    for device, counters in reduced(counted)["counters"].items():
        some = [f"{names[name]} {number:g}" for name, number in counters.items() if name in names and number]
        if some:
            yield f"{device}, counted since its driver was loaded: {', '.join(some)}"


def run_ticket(result: Result, utc: Clock) -> str:
    """The lines about a run: how it ended, and what was found, counters that grew among it."""
    verdict, found = result.verdict, [one for one in result.findings if one.state == "bad"]
    nothing = " nothing wrong" if result.findings else " nothing, as nobody looked at the pods"
    lines = [
        f"run {result.run}, {utc(result.since)} to {utc(result.until)}: {verdict.status} with {verdict.code}",
        *(f"  {line}" for line in (verdict.what, verdict.where, *verdict.why.splitlines()) if line.strip()),
        *(f"  pod {pod.index} was lost: {pod.lost}" for pod in result.pods if pod.lost),
        *([f"  why: {result.diagnosis.sentence}"] if result.diagnosis else []),
        f"  versions: {', '.join(f'{name} {version}' for name, version in result.versions.items()) or 'not known'}",
        f"  found:{'' if found else nothing}",
    ]
    for one in found:
        where = ", ".join(filter(None, (f"pod {one.pod}", one.node and f"node {one.node}", one.device)))
        limit = f" (limit: {one.limit})" if one.limit else ""
        lines.append(f"    {one.severity}: {where}: {one.check}: {one.value}{limit}")
    return "".join(f"{line}\n" for line in lines)


def pods_of(result: Result) -> dict[int, str]:
    """Its pods in words, with their places."""
    return {
        pod.index: pod_text(pod.index, pod.name, pod.pod_name, pod.node) + place_text(pod.place) for pod in result.pods
    }


def place_text(place: tuple[str, ...]) -> str:
    return f", at /{'/'.join(place)}" if place else ""

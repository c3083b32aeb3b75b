"""In what pods differ: the minority is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from agent.clinic.doctor.checks import Readings, has_gpus
from agent.decide.facts import Finding, Severity, State
from agent.decide.inventory import NODES_OWN, PROFILER
from agent.decide.subset import grouped

SOURCE = "AMD Primus, NVIDIA NVSentinel"


class FleetCheck(NamedTuple):
    """One thing that all pods have alike when all is well."""

    name: str
    read: Callable[[Readings], str | None]
    """Empty: it is not there; None: it could not be read."""
    severity: Severity
    action: str = "give all pods nodes of one pool and one image"


def compare(readings: Mapping[int, Readings], nodes: Mapping[int, str]) -> list[Finding]:
    """What most pods have is right; where no value has the most, that of the first pod."""
    return [one for check in CHECKS for one in _compared(check, readings, nodes)]


def _compared(check: FleetCheck, readings: Mapping[int, Readings], nodes: Mapping[int, str]) -> Iterator[Finding]:
    values = {pod: value for pod, one in sorted(readings.items()) if (value := check.read(one)) is not None}
    pods_of = grouped(values)
    if len(readings) < 2 or not any(pods_of):
        return
    usual = max(pods_of, key=lambda value: (len(pods_of[value]), -pods_of[value][0]))
    limit = f"{usual or 'none'}, as on most pods"
    for pod, value in values.items():
        state: State = "ok" if value == usual else "bad"
        yield Finding(
            check.name, state, check.severity, pod, nodes.get(pod, ""), "", value or "none", limit, SOURCE, check.action
        )


def _gpus(readings: Readings) -> str | None:
    gpus = readings.get("gpus", ())
    if (has_gpus(readings) and "gpus" not in readings) or any(None in (gpu["name"], gpu["memory"]) for gpu in gpus):
        return None
    models = Counter(f"{gpu['name']}, {gpu['memory']}" for gpu in gpus)
    return "; ".join(f"{count} × {model}" for model, count in sorted(models.items()))


def _mtus(readings: Readings) -> str | None:
    if "nics" not in readings:
        return None
    mtus = [(nic["name"], nic["mtu"]) for nic in readings["nics"] if not nic["name"].startswith(NODES_OWN)]
    return ", ".join(f"{name} {mtu}" for name, mtu in mtus if mtu)


def _ports(readings: Readings) -> str | None:
    """Names, speeds and the kinds of their GIDs: addresses of course differ."""
    if "rdma" not in readings:
        return None
    ports = [
        f"{device['name']}/{port['port']} {port['rate']} with {len(port['gids'])} GIDs"
        for device in readings["rdma"]
        for port in device["ports"]
    ]
    return ", ".join(ports)


def _variables(wanted: Callable[[str], bool]) -> Callable[[Readings], str | None]:
    def read(readings: Readings) -> str:
        found = readings.get("environment", {})
        return " ".join(f"{name}={value}" for name, value in sorted(found.items()) if wanted(name))

    return read


def _limit(name: str) -> Callable[[Readings], str | None]:
    return lambda readings: str(readings["limits"][name][0]) if "limits" in readings else None


VARIABLES = "set them for all pods alike, or unset them; a4-agent env says where each comes from"
RUNTIME = "limits come from the container runtime: set up all nodes alike"
CHECKS = (
    FleetCheck("NVIDIA driver", lambda readings: readings["driver"], "degraded"),
    FleetCheck("GPU models", _gpus, "degraded"),
    FleetCheck("kernel", lambda readings: readings.get("kernel"), "information"),
    FleetCheck("MTUs", _mtus, "degraded", "MTUs come from the node pool's networks: give all nodes the same ones"),
    FleetCheck("RDMA devices", _ports, "degraded"),
    FleetCheck(
        "NCCL variables",
        _variables(lambda name: name.startswith("NCCL_") and name not in PROFILER),
        "degraded",
        VARIABLES,
    ),
    FleetCheck("NVSHMEM variables", _variables(lambda name: name.startswith("NVSHMEM_")), "degraded", VARIABLES),
    FleetCheck("NCCL profiler", _variables(PROFILER.__contains__), "information", VARIABLES),
    FleetCheck("nofile", _limit("nofile"), "information", RUNTIME),
    FleetCheck("memlock", _limit("memlock"), "information", RUNTIME),
)
"""Rows of docs/doctor.md."""

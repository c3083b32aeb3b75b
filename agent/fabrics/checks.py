"""Checks that several fabrics need."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent.decide.inventory import NCCL, Inventory
from agent.decide.words import is_are, listed
from agent.fabrics.fabric import plugin

RDMA_NICS = 8
GID_INDEX = "3"
ROCE_V2 = "RoCE v2"
IPV4_MAPPED = "0000:0000:0000:0000:0000:ffff:"
"""How sysfs begins a GID that is an IPv4 address."""


def arm_nodes(inventory: Inventory) -> Iterator[str]:
    """Nodes of A4X, for which there is no profile."""
    models = {device["model"] for device in inventory.get("gpus", {}).get("devices", ())}
    if unknown := sorted(model for model in models if re.search(r"\bGB[0-9]{3}\b", model)):
        yield (
            f"nodes with {listed(unknown)} (A4X) are not supported: they have 4 RDMA NICs, processors of Arm, and "
            "NVLink between nodes, which takes an IMEX domain; use A4 or A3"
        )


def plugin_problems(inventory: Inventory, directory: str) -> Iterator[str]:
    """The plugin must load, from `directory` if one is given; for TCPX NCCL must come with it."""
    environ, loaded = inventory["environ"], inventory.get("libraries", {})
    path = f"LD_LIBRARY_PATH={environ.get('LD_LIBRARY_PATH', '')}"
    nccl, found = loaded.get(NCCL, {}), loaded.get(plugin(environ), {})
    late = inventory.get("problems", {}).get("libraries", "nobody looked")
    for name, one in ((NCCL, nccl), (plugin(environ), found)):
        if "path" not in one:
            yield f"{name} cannot be loaded ({one.get('problem', late)}): the plugin's directory must be in {path}"
    if "path" not in nccl or "path" not in found:
        return
    place = posixpath.dirname(found["path"])
    if directory and posixpath.normpath(place) != posixpath.normpath(directory):
        yield f"NCCL would load the plugin {found['path']}, not that of {directory}: put that first in {path}"
    if not directory and posixpath.dirname(nccl["path"]) != place:
        yield (
            f"NCCL {nccl.get('version', '')} is loaded from {nccl['path']}, not from beside its plugin, {place}: put "
            f"that first in {path}"
        )


def rdma_count(inventory: Inventory) -> Iterator[str]:
    active = [device["name"] for device in inventory.get("rdma", ()) if _active(device)]
    if len(active) < RDMA_NICS:
        idle = [device["name"] for device in inventory.get("rdma", ()) if not _active(device)]
        more = f", {listed(idle)} {is_are(idle)} not active" if idle else ""
        yield (
            f"{len(active)} active RDMA NICs in /sys/class/infiniband ({listed(active) or 'none'}{more}), and there "
            f"must be {RDMA_NICS}: give the pod all RDMA networks of its node"
        )


def wrong_gids(inventory: Inventory, variable: str, names: Sequence[str] | None) -> Iterator[str]:
    """The GID that is used must be RoCE v2 with an IPv4 address, on all NICs or on those named."""
    index = inventory["environ"].get(variable) or GID_INDEX
    devices = [one for one in inventory.get("rdma", ()) if _active(one) and (names is None or one["name"] in names)]
    odd = [device["name"] for device in devices if not _good_gid(device["ports"][0], index)]
    if odd:
        yield (
            f"GID {index} of {listed(odd)} is no {ROCE_V2} address with IPv4 (/sys/class/infiniband/…/gids/{index}): "
            f"the network device needs its IPv4 address, or {variable} another index"
        )


def _good_gid(port: Mapping[str, Any], index: str) -> bool:
    used = (gid for gid in port["gids"] if str(gid["index"]) == index)
    return any(gid["type"] == ROCE_V2 and gid["gid"].startswith(IPV4_MAPPED) for gid in used)


def _active(device: Mapping[str, Any]) -> bool:
    return any(port["state"] == "ACTIVE" for port in device["ports"][:1])


def gpu_count(inventory: Inventory) -> int:
    return int(inventory.get("gpus", {}).get("files", 0))

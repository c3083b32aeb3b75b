"""A4 (B200) with DeepEP, whose NVSHMEM uses the RDMA NICs beside NCCL's gIB."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from agent.decide.inventory import Inventory
from agent.decide.words import listed, plural
from agent.fabrics import a4_gib
from agent.fabrics.checks import gpu_count, wrong_gids
from agent.fabrics.fabric import Fabric, Needs, Variables

MARK = "/opt/deepep"
SCRIPT = f"{MARK}/unified-env.sh"
NVSHMEM = "libnvshmem_host"
NIC_MAP = "DEEP_EP_DEVICE_TO_HCA_MAPPING"


def _needs(environ: Variables) -> Needs:
    return Needs(_nvshmem(environ))


def _nvshmem(environ: Variables) -> list[str]:
    """Entries of LD_PRELOAD that are NVSHMEM."""
    return [name for name in re.split(r"[\s:]+", environ.get("LD_PRELOAD", "")) if NVSHMEM in name]


def _problems(inventory: Inventory) -> Iterator[str]:
    yield from _nvshmem_problems(inventory)
    text = inventory["environ"].get(NIC_MAP, "")
    if not text:
        yield (
            f"{NIC_MAP} is not set: without it NVSHMEM sends the traffic of every GPU through one NIC; set "
            "0:mlx5_0:1,1:mlx5_1:1 and so on, one entry for each GPU"
        )
        return
    mapping = dict(re.findall(r"(\d+):([^:,]+)", text))
    yield from _map_problems(inventory, mapping)
    yield from wrong_gids(inventory, "NVSHMEM_IB_GID_INDEX", list(mapping.values()))


def _map_problems(inventory: Inventory, mapping: Mapping[str, str]) -> Iterator[str]:
    missing = [str(gpu) for gpu in range(gpu_count(inventory)) if str(gpu) not in mapping]
    if missing:
        yield f"{NIC_MAP} has no NIC for {plural('GPU', missing)} {listed(missing)}: add an entry for each"
    there = [device["name"] for device in inventory.get("rdma", ())]
    gone = sorted(set(mapping.values()) - set(there))
    if gone:
        yield (
            f"{NIC_MAP} names {listed(gone)}, and /sys/class/infiniband has {listed(there) or 'nothing'}: correct it, "
            "or give the pod all RDMA networks of its node"
        )


def _nvshmem_problems(inventory: Inventory) -> Iterator[str]:
    names = _nvshmem(inventory["environ"])
    if not names:
        yield (
            f"LD_PRELOAD names no {NVSHMEM}.so.3: torch would bring an NVSHMEM of its own; preload that of the image "
            "($NVSHMEM_HOME/lib)"
        )
    for name in names:
        if problem := inventory.get("libraries", {}).get(name, {}).get("problem"):
            yield f"{name}, which LD_PRELOAD names, cannot be loaded ({problem}): is this the DeepEP image?"


FABRIC = Fabric("a4-deepep", MARK, a4_gib.NETWORK, _needs, _problems, scripts=(SCRIPT, a4_gib.SCRIPT))

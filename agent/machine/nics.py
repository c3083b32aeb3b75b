"""Network and RDMA devices of this pod, by sysfs. `root` is the file system that is looked at."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from agent.machine.files import read_value

GIDS = 8
"""Entries of a port's table that are looked at; the fabrics here use index 3 of some hundreds."""
RDMA = "sys/class/infiniband"
MANAGES_SWITCHES = b"SMDL=SW_MNG"
"""By this NVIDIA's Fabric Manager finds the devices over which it reaches the NVSwitches."""
EMPTY_GID = "0000:0000:0000:0000:0000:0000:0000:0000"


def nics(addresses: Mapping[str, str], root: str = "/") -> list[dict[str, Any]]:
    """Devices of hardware, and whatever else has one of these addresses (interface → IPv4)."""
    net = os.path.join(root, "sys/class/net")
    return [
        {
            "name": name,
            "state": read_value(f"{net}/{name}/operstate"),
            "mtu": _number(read_value(f"{net}/{name}/mtu")),
            "speed": _number(read_value(f"{net}/{name}/speed")),
            "address": addresses.get(name, ""),
        }
        for name in names_in(net)
        if name in addresses or os.path.exists(f"{net}/{name}/device")
    ]


def rdma(root: str = "/") -> list[dict[str, Any]]:
    """RDMA devices of networks, with their network devices and ports."""
    path = os.path.join(root, RDMA)
    devices = []
    for name in rdma_names(root):
        ports = []
        for number in names_in(f"{path}/{name}/ports"):
            port = f"{path}/{name}/ports/{number}"
            gids = {index: read_value(f"{port}/gids/{index}") for index in range(GIDS)}
            ports.append(
                {
                    "port": _number(number),
                    "state": read_value(f"{port}/state").rpartition(" ")[2],  # 4: ACTIVE
                    "link": read_value(f"{port}/link_layer"),
                    "rate": read_value(f"{port}/rate"),
                    "gids": [
                        {"index": index, "gid": gid, "type": read_value(f"{port}/gid_attrs/types/{index}")}
                        for index, gid in gids.items()
                        if gid not in ("", EMPTY_GID)
                    ],
                }
            )
        devices.append({"name": name, "net": names_in(f"{path}/{name}/device/net"), "ports": ports})
    return devices


def rdma_names(root: str = "/") -> list[str]:
    """RDMA devices without those that lead to NVSwitches: on boards of B200 and B300, these are ConnectX-7 as well, and
    some of their ports are always down."""
    path = os.path.join(root, RDMA)
    return [name for name in names_in(path) if not _leads_to_switches(f"{path}/{name}")]


def _leads_to_switches(device: str) -> bool:
    """By its vital product data, which only root may read and a NIC takes some milliseconds to give: Ethernet is not
    asked for it."""
    if not any(read_value(f"{device}/ports/{port}/link_layer") == "InfiniBand" for port in names_in(f"{device}/ports")):
        return False
    try:
        with open(f"{device}/device/vpd", "rb") as file:
            return MANAGES_SWITCHES in file.read()
    except OSError:
        return False


def names_in(path: str) -> list[str]:
    """What is in a directory, mlx5_10 after mlx5_9; empty when it is not there."""
    try:
        names = os.listdir(path)
    except OSError:
        return []
    return sorted(
        names, key=lambda name: [(int(part) if part.isdecimal() else 0, part) for part in re.findall(r"\d+|\D+", name)]
    )


def _number(text: str) -> int | None:
    """None also for -1, which is how sysfs says that it does not know."""
    return int(text) if text.isdecimal() else None

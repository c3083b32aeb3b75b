"""Counters of this pod's devices, as a run reads them before and after: files of sysfs and texts of nvidia-smi."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from agent.machine.files import read, read_value
from agent.machine.health.pod_readings import kernel_log, nvidia_smi
from agent.machine.inventory import InventoryPart, gathered
from agent.machine.nics import names_in
from agent.machine.resources import gpu_count


def read_counters(environ: Mapping[str, str], seconds: float, root: str = "/") -> dict[str, Any]:
    """Texts and numbers by part; `problems` says of each part that could not be read why. Takes `seconds` at most: what
    hangs in the kernel is left behind."""
    parts = {"nics": InventoryPart(lambda: {"nics": nic_counters(root)}, seconds)}
    if gpu_count(root):
        parts |= {
            "gpus": InventoryPart(lambda: {"nvidia_smi": nvidia_smi(environ, seconds - 0.3, "-q", "-x")}, seconds),
            "nvlink": InventoryPart(lambda: {"nvlink": nvidia_smi(environ, seconds - 0.3, "nvlink", "-e")}, seconds),
            "xids": InventoryPart(lambda: {"kernel_log": kernel_log(root)}, seconds),
        }
    uptime = float((read(os.path.join(root, "proc/uptime")) or "0").split()[0])
    return {"uptime": uptime, **gathered(parts)}


def nic_counters(root: str = "/") -> dict[str, dict[str, int]]:
    """Device → counter → number: of each port `mlx5_0/1`, and of each network device of hardware."""
    found = {}
    infiniband, net = os.path.join(root, "sys/class/infiniband"), os.path.join(root, "sys/class/net")
    for name in names_in(infiniband):
        for port in names_in(f"{infiniband}/{name}/ports"):
            place = f"{infiniband}/{name}/ports/{port}"
            found[f"{name}/{port}"] = {**_numbers(f"{place}/counters"), **_numbers(f"{place}/hw_counters")}
    for name in names_in(net):
        changes = read_value(f"{net}/{name}/carrier_changes")
        if changes.isdecimal() and os.path.exists(f"{net}/{name}/device"):
            found[name] = {"carrier_changes": int(changes)}
    return found


def _numbers(directory: str) -> dict[str, int]:
    texts = {name: read_value(f"{directory}/{name}") for name in names_in(directory)}
    return {name: int(text) for name, text in texts.items() if text.isdecimal()}

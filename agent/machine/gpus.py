"""GPUs of this pod: device files, the kernel module, and what NVML says."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from agent.machine.asking import ask
from agent.machine.files import read
from agent.machine.resources import gpu_count
from agent.paths import own_program


def gpus(environ: Mapping[str, str], root: str = "/", seconds: float = 25.0) -> dict[str, Any]:
    """`files`, `driver`, `cuda` (the newest that the driver can), `devices`; `problem`: why NVML does not say more.

    Without persistence mode NVML wakes every GPU, which takes a second or so for each.
    """
    found = {"files": gpu_count(root), "driver": module_version(root), "cuda": "", "devices": []}
    # It has no use for the workload's libraries.
    own = {name: value for name, value in environ.items() if name != "LD_PRELOAD"}
    answer = ask("NVML", own_program("ask-gpus.py"), own, seconds)
    if answer.problem:
        return {**found, "problem": answer.problem}
    return {**found, **json.loads(answer.output)}


def module_version(root: str) -> str:
    """The version of the loaded kernel module; empty without one."""
    found = re.search(
        r"Kernel Module(?: for \S+)?\s+(\d[\d.]+)", read(os.path.join(root, "proc/driver/nvidia/version")) or ""
    )
    return found[1] if found else ""

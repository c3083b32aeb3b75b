"""python -m agent.clinic.probes.gpu_memory ENVIRON SECONDS prints which GPUs of this pod have memory in use, and who
has them open, as a line of JSON. Whatever hangs in the kernel keeps this process, and never the agent."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from agent.clinic.probes.pod_readings import nvidia_smi
from agent.machine.files import read_value

QUERY = ("--query-gpu=index,memory.used", "--format=csv,noheader,nounits")
HELD_MIB = 512
"""Less is free, as for NVIDIA's own launcher (nvidia-resiliency-ext, gpu_memory_tolerance_mb). Utilization says
nothing: a Blackwell may stay at 100 % after a kill."""


def gpu_memory(environ: Mapping[str, str], seconds: float, root: str = "/") -> dict[str, Any]:
    """`used`: GPU → MiB, of those that are not free; `holders`: see below. Or `problem`: why nobody knows.

    environ: variables with which nvidia-smi finds itself and its library
    """
    try:
        text = nvidia_smi(environ, seconds, *QUERY)
    except OSError as error:
        return {"problem": str(error)}
    used = {f"GPU {gpu}": int(mib) for gpu, mib in re.findall(r"^(\d+), (\d+)$", text, re.MULTILINE)}
    held = {gpu: mib for gpu, mib in used.items() if mib >= HELD_MIB}
    return {"used": held, "holders": _holders(root) if held else []}


def _holders(root: str) -> list[str]:
    """Processes of this pod that have a GPU open, as "PID NAME". One of another container is not among them."""
    found = []
    for pid in filter(str.isdecimal, os.listdir(f"{root}/proc")):
        try:
            files = [os.readlink(entry.path) for entry in os.scandir(f"{root}/proc/{pid}/fd")]
        except OSError:  # it has ended, or has closed one
            continue
        if any(re.fullmatch(r"/dev/nvidia\d+", file) for file in files):
            found.append(f"{pid} {read_value(f'{root}/proc/{pid}/comm')}")
    return sorted(found, key=lambda one: int(one.split()[0]))


if __name__ == "__main__":
    print(json.dumps(gpu_memory(json.loads(sys.argv[1]), float(sys.argv[2]))), flush=True)

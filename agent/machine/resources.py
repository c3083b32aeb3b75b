"""Cores, memory, limits and GPUs of this pod. `root` is the file system that is looked at."""

from __future__ import annotations

import json
import os
import re
import resource
from collections.abc import Mapping
from typing import Any

from agent.machine.asking import ask
from agent.machine.cgroup_limits import cpu_quota, memory_limit
from agent.machine.files import read
from agent.paths import own_program

LIMITS = {"memlock": resource.RLIMIT_MEMLOCK, "nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
UNLIMITED = "unlimited"
CPU_INFO_BYTES = 4096
"""The first core's; the kernel makes up the rest as it is read, a page at a time."""


def resources(root: str = "/") -> dict[str, Any]:
    """Memory, limits and cores of this pod, as they stand in the inventory."""
    return {
        "kernel": os.uname().release,
        "cpus": {"allowed": len(os.sched_getaffinity(0)), "quota": cpu_quota(root), "model": cpu_model(root)},
        "memory": {"total": memory_total(root), "limit": memory_limit(root)},
        "shm": shm(root),
        "limits": {
            name: [UNLIMITED if value == resource.RLIM_INFINITY else value for value in resource.getrlimit(number)]
            for name, number in LIMITS.items()
        },
    }


def gpu_count(root: str = "/") -> int:
    """NVIDIA devices that this pod can open."""
    return sum(bool(re.fullmatch(r"nvidia\d+", name)) for name in os.listdir(os.path.join(root, "dev")))


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


def cpu_model(root: str) -> str:
    try:
        with open(os.path.join(root, "proc/cpuinfo"), encoding="utf-8", errors="replace") as file:
            found = re.search(r"(?m)^model name\s*:\s*(.*)$", file.read(CPU_INFO_BYTES))
    except OSError:
        return ""
    return found[1].strip() if found else ""


def memory_total(root: str) -> int | None:
    found = re.search(r"(?m)^MemTotal:\s*(\d+) kB", read(os.path.join(root, "proc/meminfo")) or "")
    return int(found[1]) * 1024 if found else None


def shm(root: str) -> dict[str, int] | None:
    """Bytes of /dev/shm, which NCCL and NVSHMEM take for the processes of one pod; None: it is not there."""
    try:
        found = os.statvfs(os.path.join(root, "dev/shm"))
    except OSError:
        return None
    return {"size": found.f_blocks * found.f_frsize, "free": found.f_bavail * found.f_frsize}

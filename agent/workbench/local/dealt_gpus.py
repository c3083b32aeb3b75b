"""Real GPUs for pods: found on this machine, and dealt out as a device plugin does."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from agent.errors import UsageError
from agent.workbench.local.spec import ClusterSpec

_SHARED = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
_VARIABLES = ("LD_LIBRARY_PATH",)
_PREFIXES = ("NCCL_", "NVSHMEM_", "TORCH_SYMM_MEM_")
_DRIVER = re.compile(r"nvidia|cuda")


class Gpus(NamedTuple):
    """Device files of this machine."""

    numbered: tuple[str, ...] = ()
    """One per GPU, in the order of their numbers."""
    shared: tuple[str, ...] = ()
    """What every program with any GPU opens."""


def find_gpus(directory: str = "/dev") -> Gpus:
    """What `directory` has."""
    names = os.listdir(directory)
    numbers = sorted(int(found[1]) for name in names if (found := re.fullmatch(r"nvidia(\d+)", name)))
    return Gpus(
        tuple(f"{directory}/nvidia{number}" for number in numbers),
        tuple(f"{directory}/{name}" for name in _SHARED if name in names),
    )


def check_room(spec: ClusterSpec, gpus: Gpus) -> None:
    """Raise UsageError when the pods want more GPUs than there are."""
    wanted, there = spec.pods * spec.gpus_per_pod, len(gpus.numbered)
    if spec.real_gpus and wanted > there:
        what = f"{spec.pods} x {spec.gpus_per_pod} real GPUs (pods x per pod) are {wanted}, this machine has {there}"
        raise UsageError(what, "reduce --pods or --gpus-per-pod, or omit --real-gpus to simulate GPUs")


def devices_of(spec: ClusterSpec, index: int, gpus: Gpus) -> tuple[str, ...]:
    """Device files of a pod: its own share of GPUs, whether the others come or not, and what all need."""
    if not spec.real_gpus:
        return ()
    first = index * spec.gpus_per_pod
    return (*gpus.numbered[first : first + spec.gpus_per_pod], *gpus.shared)


def gpu_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Where the driver's libraries are, and what this machine forbids its GPUs, such as NVLink multicast."""
    return {name: value for name, value in environ.items() if name in _VARIABLES or name.startswith(_PREFIXES)}


def driver_mounts(mount_points: Iterable[str]) -> list[str]:
    """Those by which a container runtime, or an image, brings the driver: directories, or one file each."""
    return [path for path in mount_points if _DRIVER.search(path)]


def guarded_parameters(text: str) -> str:
    """The driver's parameters (/proc/driver/nvidia/params), so that its libraries make no device file themselves."""
    return re.sub(r"(?m)^ModifyDeviceFiles: .*$", "ModifyDeviceFiles: 0", text)

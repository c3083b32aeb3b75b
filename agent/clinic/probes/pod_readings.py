"""What `a4-agent doctor` reads in one pod, and what a run reads of its devices before and after.

Each part has a thread and a time of its own.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from threading import Event
from typing import Any

from agent.clinic.probes.gpu_probe import probe, probe_nccl
from agent.machine.api import Search
from agent.machine.asking import ask
from agent.machine.files import read, read_value
from agent.machine.inventory import InventoryPart, gathered, wait_for_socket
from agent.machine.nics import RDMA, names_in, nics, rdma, rdma_names
from agent.machine.resources import gpu_count, module_version, resources
from agent.machine.versions import libraries, torch
from agent.paths import SMI_DIRECTORY

AGAIN = 0.5
"""Seconds after which a name is looked up again."""
PROBE_SECONDS = 26.0
"""For all children on GPUs together. Importing torch takes up to 10 s from a cold disk."""
KERNEL_RECORD_BYTES = 8192
"""The kernel hands out a record at a time, and refuses one that does not fit."""


def read_pod(
    environ: Mapping[str, str],
    paths: Sequence[str],
    peers: Sequence[str],
    run: str,
    needs: Search | None,
    root: str = "/",
) -> dict[str, Any]:
    """Everything; `problems` says of each part that could not be read why. Takes 30 s at most.

    environ: what workloads of this pod get; paths: directories whose disks are looked at; peers: names that are looked
    up; run: the one that has the cluster, if there is one: GPUs are not computed with meanwhile; needs: what the pod's
    fabric takes, if it has one.
    """
    parts = _parts_of_host(paths, peers, root)
    driver = module_version(root)
    if driver or gpu_count(root):
        parts |= _parts_of_gpus(environ, run, root)
    if needs is not None:
        parts["libraries"] = InventoryPart(lambda: libraries(needs.libraries, needs.files, environ, 20.0), 25.0)
        if needs.socket_dir:
            parts["socket"] = InventoryPart(lambda: {"socket": wait_for_socket(needs.socket_dir, print, 0.0)}, 5.0)
    return {**gathered(parts), "driver": driver}


def read_host(paths: Sequence[str], peers: Sequence[str], root: str = "/") -> dict[str, Any]:
    """The part of it that starts no program, and the kernel log. Takes 10 s at most."""
    return gathered(
        {
            **_parts_of_host(paths, peers, root),
            "kernel log": InventoryPart(lambda: {"kernel_log": kernel_log(root)}, 5.0),
        }
    )


def _parts_of_host(paths: Sequence[str], peers: Sequence[str], root: str) -> dict[str, InventoryPart]:
    return {
        "resources": InventoryPart(lambda: {**resources(root), "gpu_files": gpu_count(root)}, 5.0),
        "nics": InventoryPart(lambda: {"nics": nics({}, root), "rdma": rdma(root)}, 10.0),
        "disks": InventoryPart(lambda: {"disks": [disk(path) for path in paths]}, 5.0),
        "names": InventoryPart(lambda: {"names": names(peers)}, 10.0),
    }


def _parts_of_gpus(environ: Mapping[str, str], run: str, root: str) -> dict[str, InventoryPart]:
    listed = Event()
    until = time.monotonic() + PROBE_SECONDS

    def list_gpus() -> dict[str, Any]:
        try:
            return {"nvidia_smi": nvidia_smi(environ, 15.0, "-q", "-x")}
        finally:
            listed.set()

    def seconds_to_probe() -> float:
        """What computes on a GPU now would be in the list of its processes."""
        listed.wait()
        return until - time.monotonic()

    return {
        "gpus": InventoryPart(list_gpus, 20.0),
        "nvlinks": InventoryPart(lambda: {"nvidia_smi_nvlink": nvidia_smi(environ, 15.0, "nvlink", "-s")}, 20.0),
        "xids": InventoryPart(lambda: {"kernel_log": kernel_log(root)}, 5.0),
        "probes": InventoryPart(
            lambda: {"probes": probe(environ, gpu_count(root), run, seconds_to_probe())}, PROBE_SECONDS + 2.0
        ),
        "torch": InventoryPart(
            lambda: {"torch": torch(environ.get("A4_PYTHON") or "python3", environ, environ.get("PATH", os.defpath))},
            25.0,
        ),
        "nccl": InventoryPart(lambda: {"nccl": probe_nccl(environ, run, seconds_to_probe())}, PROBE_SECONDS + 2.0),
    }


def nvidia_smi(environ: Mapping[str, str], seconds: float, *arguments: str) -> str:
    """What it says. Raises OSError."""
    path = os.pathsep.join((environ.get("PATH", os.defpath), SMI_DIRECTORY))
    program = shutil.which("nvidia-smi", path=path)
    if program is None:
        raise FileNotFoundError(f"nvidia-smi is not on PATH, nor in {SMI_DIRECTORY}")
    # nvidia-smi has no use for what workloads preload.
    answer = ask("nvidia-smi", [program, *arguments], {**environ, "LD_PRELOAD": ""}, seconds)
    if answer.problem:
        # It says on stdout which GPU is lost. What it has printed of its XML until then says nothing.
        said = " ".join(line.strip() for line in answer.output.splitlines() if not line.lstrip().startswith("<"))
        raise OSError("; ".join(filter(None, (answer.problem, said[:300]))))
    return answer.output


def kernel_log(root: str) -> dict[str, Any]:
    """Its `records`, and the `uptime` in seconds. Raises OSError where this pod may not read it, as most may not."""
    pieces = []
    log = os.open(os.path.join(root, "dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            try:
                pieces.append(os.read(log, KERNEL_RECORD_BYTES))
            except BrokenPipeError:  # records were overwritten meanwhile
                continue
            except BlockingIOError:
                break
            if not pieces[-1]:
                break
    finally:
        os.close(log)
    return {"records": b"".join(pieces).decode(errors="replace").splitlines(), "uptime": _uptime(root)}


def _uptime(root: str) -> float:
    return float((read(os.path.join(root, "proc/uptime")) or "0").split()[0])


def disk(path: str) -> dict[str, Any]:
    """Bytes and files of the file system that has a directory, which need not be there yet."""
    while path != "/" and not os.path.lexists(path):
        path = os.path.dirname(path)
    try:
        found = os.statvfs(path)
    except OSError as error:
        return {"path": path, "problem": f"{error.strerror}"}
    sizes = {"bytes": found.f_blocks * found.f_frsize, "bytes_free": found.f_bavail * found.f_frsize}
    return {"path": path, "problem": "", **sizes, "files": found.f_files, "files_free": found.f_favail}


def names(peers: Sequence[str]) -> list[dict[str, Any]]:
    """How long the resolver takes for each. A slow one is looked up again: the core may have been busy."""
    found = [_look_up(name) for name in peers]
    return [_look_up(one["name"]) if one["seconds"] >= AGAIN or one["problem"] else one for one in found]


def _look_up(name: str) -> dict[str, Any]:
    began, problem = time.monotonic(), ""
    try:
        socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        problem = str(error.strerror)
    return {"name": name, "seconds": round(time.monotonic() - began, 3), "problem": problem}


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
    return {"uptime": _uptime(root), **gathered(parts)}


def nic_counters(root: str = "/") -> dict[str, dict[str, int]]:
    """Device → counter → number: of each port `mlx5_0/1`, and of each network device of hardware."""
    found = {}
    infiniband, net = os.path.join(root, RDMA), os.path.join(root, "sys/class/net")
    for name in rdma_names(root):
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

"""The inventory of a pod in few words: name → text, for the coordinator, for comparing pods, and for result.json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from agent.decide.words import size_text

NODES_OWN = (
    "docker", "br-", "veth", "gke", "cali", "cilium", "lxc", "cni",
    "flannel", "weave", "kube", "nodelocaldns", "virbr", "tunl", "vxlan", "dummy",
)  # fmt: skip
"""Beginnings of names of interfaces that a node makes for the pods on it: seen with hostNetwork, and never alike."""
FABRIC_VARIABLES = ("NCCL_", "NVSHMEM_", "DEEP_EP_", "LD_LIBRARY_PATH", "LD_PRELOAD")
"""Beginnings of names of variables that decide which fabric is used."""
PROFILER = ("NCCL_PROFILER_PLUGIN", "NCCL_TELEMETRY_MODE")
"""Which profiler NCCL loads, and what Google's, CoMMA, does: 0 nothing, 1 files, 3 upload, 4 both."""
NCCL = "libnccl.so.2"
SINCE = {
    "2.18": ("ncclCommSplit",),
    "2.19": ("ncclCommDeregister", "ncclCommRegister", "ncclMemAlloc", "ncclMemFree"),
    "2.22": ("ncclGroupSimulateEnd",),
    "2.23": ("ncclCommInitRankScalable",),
    "2.27": ("ncclCommShrink", "ncclCommWindowDeregister", "ncclCommWindowRegister"),
    "2.28": ("ncclAlltoAll", "ncclCommRevoke", "ncclDevCommCreate", "ncclDevCommDestroy", "ncclGather", "ncclScatter"),
    "2.29": (
        "ncclCommGetUniqueId", "ncclCommGrow", "ncclCommMemStats", "ncclCommResume", "ncclCommSuspend",
        "ncclGetLsaMultimemDevicePointer", "ncclGetPeerDevicePointer", "ncclPutSignal", "ncclSignal", "ncclWaitSignal",
        "ncclWinGetUserPtr",
    ),
}  # fmt: skip
"""Release of NCCL → functions that it was the first to have, of those that torch calls (nccl.h of each release)."""
INSPECTOR, OFF = "NCCL_INSPECTOR_ENABLE", ("", "0")
Inventory = Mapping[str, Any]
"""As agent.machine.inventory gives it, with `environ`: the variables above."""


def fabric_variables(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[name] for name in sorted(environ) if name.startswith(FABRIC_VARIABLES)}


def profiler_problem(environ: Mapping[str, str]) -> str:
    """Why NCCL Inspector, which somebody asks for here, would not run; empty: nobody asks, or it would."""
    plugin, mode = (environ.get(name, "") for name in PROFILER)
    named = "inspector" in plugin
    if not named and environ.get(INSPECTOR, "") in OFF:
        return ""
    comma = f"NCCL_TELEMETRY_MODE={mode}" if mode not in OFF else ""
    other = comma or (f"NCCL_PROFILER_PLUGIN={plugin}" if plugin and not named else "")
    asked = plugin if named else f"{INSPECTOR}={environ[INSPECTOR]}"
    return other and (
        f"NCCL Inspector is asked for ({asked}), and NCCL has another profiler ({other}): it loads one alone. Set "
        f"NCCL_TELEMETRY_MODE=0 and NCCL_PROFILER_PLUGIN to Inspector's library, or unset {INSPECTOR}"
    )


def flat(inventory: Inventory) -> dict[str, str]:
    """What is a text already stays; of what is nested, the words for people. What is not known is left out."""
    texts = {name: value for name, value in inventory.items() if isinstance(value, str)}
    parts = (_resources, _gpus, _nics, _nccl, _torch, _problems)
    texts |= {name: text for part in parts for name, text in part(inventory)}
    return {name: text for name, text in texts.items() if text}


def _resources(inventory: Inventory) -> Iterator[tuple[str, str]]:
    if cpus := inventory.get("cpus"):
        quota = cpus["quota"]
        yield "cpus", f"{quota:g} of {cpus['allowed']} (cgroup)" if quota else str(cpus["allowed"])
        yield "cpu", cpus["model"]
    if memory := inventory.get("memory"):
        total, limit = memory["total"], memory["limit"]
        yield (
            "memory",
            f"{size_text(limit)} of {size_text(total)} (cgroup)" if limit and total else size_text(limit or total or 0),
        )
    if shm := inventory.get("shm"):
        yield "shm", size_text(shm["size"] or 0)
    if limits := inventory.get("limits"):
        soft = limits["memlock"][0]
        yield "memlock", soft if isinstance(soft, str) else size_text(soft)


def _gpus(inventory: Inventory) -> Iterator[tuple[str, str]]:
    gpus = inventory.get("gpus")
    if not gpus:
        return
    models = Counter(device["model"] for device in gpus["devices"])
    yield "gpus", ", ".join(f"{count} × {model}" for model, count in models.items())
    yield "gpu_memory", ", ".join(sorted({size_text(device["memory"]) for device in gpus["devices"]}))
    yield "driver", gpus["driver"]
    yield "driver_cuda", gpus["cuda"]
    yield "mig", "on" if any(device["mig"] for device in gpus["devices"]) else ""
    yield "gpus_problem", gpus.get("problem", "")


def _nics(inventory: Inventory) -> Iterator[tuple[str, str]]:
    names = [device["name"] for device in inventory.get("rdma", ())]
    yield "nics", f"{len(names)} RDMA: {' '.join(names)}" if names else ""
    mtus = [(nic["name"], nic["mtu"]) for nic in inventory.get("nics", ()) if not nic["name"].startswith(NODES_OWN)]
    yield "mtu", ", ".join(f"{name} {mtu}" for name, mtu in mtus if mtu)


def _nccl(inventory: Inventory) -> Iterator[tuple[str, str]]:
    for name, found in inventory.get("libraries", {}).items():
        if name == NCCL:
            yield "nccl", library(found)
            problem = found.get("problem", "")
            yield "nccl_problem", "" if problem.startswith(f"{NCCL}: cannot open") else problem  # there is none
        elif "libnccl-net" in name:
            yield "nccl_plugin", found.get("path", "")
    environ = inventory.get("environ", {})
    yield "nccl_profiler", " ".join(f"{name}={environ[name]}" for name in (*PROFILER, INSPECTOR) if environ.get(name))


def _torch(inventory: Inventory) -> Iterator[tuple[str, str]]:
    torch = inventory.get("torch", {})
    yield "torch", torch.get("version", "")
    yield "torch_problem", torch.get("problem", "")
    nccl = torch.get("nccl", {})
    other = nccl.get("path") != inventory.get("libraries", {}).get(NCCL, {}).get("path")
    yield "nccl_torch", library(nccl) if other else ""
    yield "nccl_torch_problem", _too_old(torch.get("version", ""), nccl) if nccl.get("lacks") else ""


def _too_old(torch: str, nccl: Mapping[str, Any]) -> str:
    """Torch is made for a newer NCCL than the one that it would load."""
    lacks = nccl["lacks"]
    release, name = next(
        ((release, name) for release in reversed(SINCE) for name in SINCE[release] if name in lacks), ("", lacks[0])
    )
    needs = f"NCCL {release} or later" if release else "a newer NCCL"
    more = f" and {len(lacks) - 1} more" if len(lacks) > 1 else ""
    return (
        f"torch {torch} needs {needs}, and NCCL {library(nccl)} is loaded, which lacks {name}{more}: import torch fails"
    )


def _problems(inventory: Inventory) -> Iterator[tuple[str, str]]:
    names = {"mpi": "mpirun", "libraries": "nccl"}  # what people know the part by
    for part, why in inventory.get("problems", {}).items():
        yield f"{names.get(part, part)}_problem", why


def library(found: Mapping[str, Any]) -> str:
    """`2.28.9 at /path`; empty when it is not there."""
    return " at ".join(found[key] for key in ("version", "path") if key in found)

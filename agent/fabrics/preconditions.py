"""What a fabric profile needs of a pod: what to look for, and what is wrong with what was found."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent.decide.inventory import NCCL, Inventory
from agent.fabrics import profiles

GIB, DEEPEP, TCPX = "a4-gib", "a4-deepep", "a3-tcpx"

GIB_LIBRARIES = f"{profiles.GIB}/lib64"
RDMA_NICS = 8
GID_INDEX = "3"
ROCE_V2 = "RoCE v2"
IPV4_MAPPED = "0000:0000:0000:0000:0000:ffff:"
"""How sysfs begins a GID that is an IPv4 address."""
NVSHMEM = "libnvshmem_host"
NIC_MAP = "DEEP_EP_DEVICE_TO_HCA_MAPPING"
LEAST_PODS = {"deepep": 2}
"""By workload: it is about what goes between pods."""

TCPX_GPUS = 8
TCPX_NICS = "eth1,eth2,eth3,eth4"
TCPX_MTU = 8244
TCPX_DRIVER = 535
TCPX_SOCKETS = profiles.TCPX

Variables = Mapping[str, str]


# What to look for


def libraries(profile: str, environ: Variables) -> list[str]:
    """Names that the loader is asked for, as NCCL and the programs ask for them."""
    names = [NCCL, plugin(environ)]
    return [*names, *_nvshmem(environ)] if profile == DEEPEP else names


def files(profile: str, environ: Variables) -> list[str]:
    """Files that must be there."""
    if profile != GIB:
        return []
    tuner = environ.get("NCCL_TUNER_CONFIG_PATH", "")
    return [f"{_gib(environ)}/libnccl-net.so", *([tuner] if tuner else [])]


def socket_dir(profile: str, environ: Variables) -> str:
    """Where the daemon beside the workload puts its sockets; empty: there is none."""
    if profile != TCPX:
        return ""
    return environ.get("NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX") or TCPX_SOCKETS


def plugin(environ: Variables) -> str:
    """The network plugin that NCCL loads."""
    name = environ.get("NCCL_NET_PLUGIN", "")
    if "/" in name or name.endswith(".so"):
        return name
    return f"libnccl-net-{name}.so" if name else "libnccl-net.so"


def _gib(environ: Variables) -> str:
    return environ.get("NCCL_PLUGIN_PATH") or GIB_LIBRARIES


def _nvshmem(environ: Variables) -> list[str]:
    """Entries of LD_PRELOAD that are NVSHMEM."""
    return [name for name in re.split(r"[\s:]+", environ.get("LD_PRELOAD", "")) if NVSHMEM in name]


# What is wrong


def problems(profile: str, inventory: Inventory, pods: int) -> list[str]:
    """Why this pod cannot use the fabric of its profile in a job of so many pods; each sentence stands alone."""
    if pods == 1:  # nothing goes between pods
        return []
    checks = {GIB: _gib_problems, DEEPEP: _deepep_problems, TCPX: _tcpx_problems}
    check = checks.get(profile)
    return list(check(inventory)) if check is not None else []


def too_few_pods(workload: str, pods: int) -> str:
    """Why a workload cannot run on so few pods; empty when it can."""
    least = LEAST_PODS.get(workload, 1)
    if pods >= least:
        return ""
    return f"{workload} measures what goes between pods: it needs {least} or more, and this run has {pods}"


def _gib_problems(inventory: Inventory) -> Iterator[str]:
    environ = inventory["environ"]
    gone = [path for path, there in inventory.get("files", {}).items() if not there]
    if gone:
        yield (
            f"gIB is not installed in this pod: {_and(gone)} {_is(gone)} not there; mount what its init container or "
            "installer made (NCCL_PLUGIN_PATH names its lib64)"
        )
    else:
        yield from _plugin_problems(inventory, _gib(environ))
    yield from _rdma_count(inventory)
    yield from _gids(inventory, "NCCL_IB_GID_INDEX", None)


def _deepep_problems(inventory: Inventory) -> Iterator[str]:
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
    yield from _gids(inventory, "NVSHMEM_IB_GID_INDEX", list(mapping.values()))


def _map_problems(inventory: Inventory, mapping: Mapping[str, str]) -> Iterator[str]:
    missing = [str(gpu) for gpu in range(_gpu_count(inventory)) if str(gpu) not in mapping]
    if missing:
        yield f"{NIC_MAP} has no NIC for {_plural('GPU', missing)} {_and(missing)}: add an entry for each"
    there = [device["name"] for device in inventory.get("rdma", ())]
    gone = sorted(set(mapping.values()) - set(there))
    if gone:
        yield (
            f"{NIC_MAP} names {_and(gone)}, and /sys/class/infiniband has {_and(there) or 'nothing'}: correct it, or "
            "give the pod all RDMA networks of its node"
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


def _tcpx_problems(inventory: Inventory) -> Iterator[str]:
    yield from _tcpx_gpus(inventory)
    names = inventory["environ"].get("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME") or TCPX_NICS
    yield from _tcpx_nics(names.split(","), {nic["name"]: nic for nic in inventory.get("nics", ())})
    socket = inventory.get("socket", {})
    if not socket.get("there"):
        yield (
            f"no socket of the TCPX daemon in {socket.get('directory', TCPX_SOCKETS)}, after "
            f"{socket.get('waited', 0):.0f} s: the pod needs the container tcpx-daemon, and its directory mounted here "
            "too (NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX says where)"
        )
    yield from _plugin_problems(inventory, "")


def _tcpx_gpus(inventory: Inventory) -> Iterator[str]:
    gpus = inventory.get("gpus", {})
    if gpus and (count := _gpu_count(inventory)) != TCPX_GPUS:
        yield f"/dev has {count} of the {TCPX_GPUS} GPUs that TCPX needs: request nvidia.com/gpu: {TCPX_GPUS}"
    driver = gpus.get("driver", "")
    number = re.match(r"\d+", driver)
    if number and int(number[0]) < TCPX_DRIVER:
        yield f"NVIDIA driver {driver}, and TCPX needs {TCPX_DRIVER} or later: nodes with another gpu-driver-version"
    if why := gpus.get("problem") or inventory.get("problems", {}).get("gpus"):
        yield f"NVML does not say whether MIG is on, which TCPX does not allow: {why}"
    mig = [str(index) for index, device in enumerate(gpus.get("devices", ())) if device["mig"]]
    if mig:
        yield (
            f"MIG is on, by NVML, on {_plural('GPU', mig)} {_and(mig)}, which TCPX does not allow: take nodes without "
            "GPU partitions"
        )


def _tcpx_nics(names: Sequence[str], nics: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    gone = [name for name in names if name not in nics]
    if gone:
        yield (
            f"{_plural('interface', gone)} {_and(gone)} {_is(gone)} not there (/sys/class/net): TCPX needs all four "
            "data networks in the pod, by hostNetwork or by networking.gke.io/interfaces"
        )
    down = [name for name in names if name in nics and nics[name]["state"] not in ("up", "unknown")]
    if down:
        yield f"{_plural('interface', down)} {_and(down)} {_is(down)} down (/sys/class/net/…/operstate): see the node"
    odd = {name: nics[name]["mtu"] for name in names if name in nics and nics[name]["mtu"] != TCPX_MTU}
    if odd:
        sizes = _and([f"{name} has {mtu or 'none'}" for name, mtu in odd.items()])
        yield f"TCPX needs MTU {TCPX_MTU}, and {sizes} (/sys/class/net/…/mtu): make the networks with --mtu={TCPX_MTU}"


# What several profiles need


def _plugin_problems(inventory: Inventory, directory: str) -> Iterator[str]:
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


def _rdma_count(inventory: Inventory) -> Iterator[str]:
    active = [device["name"] for device in inventory.get("rdma", ()) if _active(device)]
    if len(active) < RDMA_NICS:
        idle = [device["name"] for device in inventory.get("rdma", ()) if not _active(device)]
        more = f", {_and(idle)} {_is(idle)} not active" if idle else ""
        yield (
            f"{len(active)} active RDMA NICs in /sys/class/infiniband ({_and(active) or 'none'}{more}), and there must "
            f"be {RDMA_NICS}: give the pod all RDMA networks of its node"
        )


def _gids(inventory: Inventory, variable: str, names: Sequence[str] | None) -> Iterator[str]:
    """The GID that is used must be RoCE v2 with an IPv4 address, on all NICs or on those named."""
    index = inventory["environ"].get(variable) or GID_INDEX
    devices = [one for one in inventory.get("rdma", ()) if _active(one) and (names is None or one["name"] in names)]
    odd = [device["name"] for device in devices if not _good_gid(device["ports"][0], index)]
    if odd:
        yield (
            f"GID {index} of {_and(odd)} is no {ROCE_V2} address with IPv4 (/sys/class/infiniband/…/gids/{index}): the "
            f"network device needs its IPv4 address, or {variable} another index"
        )


def _good_gid(port: Mapping[str, Any], index: str) -> bool:
    for gid in port["gids"]:
        if str(gid["index"]) == index:
            return bool(gid["type"] == ROCE_V2 and gid["gid"].startswith(IPV4_MAPPED))
    return False


def _active(device: Mapping[str, Any]) -> bool:
    return any(port["state"] == "ACTIVE" for port in device["ports"][:1])


def _gpu_count(inventory: Inventory) -> int:
    return int(inventory.get("gpus", {}).get("files", 0))


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _is(words: Sequence[str]) -> str:
    return "is" if len(words) == 1 else "are"


def _plural(noun: str, words: Sequence[str]) -> str:
    return noun if len(words) == 1 else f"{noun}s"

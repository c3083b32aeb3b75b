"""A3 (H100) with GPUDirect-TCPX: a daemon beside the workload, and four data networks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent.decide.inventory import Inventory
from agent.decide.words import is_are, listed, plural
from agent.fabrics.checks import gpu_count, plugin_problems
from agent.fabrics.fabric import Fabric, Needs, Variables

MARK = "/run/tcpx"
"""The daemon's sockets: a mount that only an A3 pod has."""
GPUS = 8
NICS = "eth1,eth2,eth3,eth4"
MTU = 8244
DRIVER = 535


def _needs(environ: Variables) -> Needs:
    sockets = environ.get("NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX") or MARK
    return Needs(socket_dir=sockets)


def _problems(inventory: Inventory) -> Iterator[str]:
    yield from _wrong_gpus(inventory)
    names = inventory["environ"].get("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME") or NICS
    yield from _wrong_nics(names.split(","), {nic["name"]: nic for nic in inventory.get("nics", ())})
    socket = inventory.get("socket", {})
    if not socket.get("there"):
        yield (
            f"no socket of the TCPX daemon in {socket.get('directory', MARK)}, after "
            f"{socket.get('waited', 0):.0f} s: the pod needs the container tcpx-daemon, and its directory mounted here "
            "too (NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX says where)"
        )
    yield from plugin_problems(inventory, "")


def _wrong_gpus(inventory: Inventory) -> Iterator[str]:
    gpus = inventory.get("gpus", {})
    if gpus and (count := gpu_count(inventory)) != GPUS:
        yield f"/dev has {count} of the {GPUS} GPUs that TCPX needs: request nvidia.com/gpu: {GPUS}"
    driver = gpus.get("driver", "")
    number = re.match(r"\d+", driver)
    if number and int(number[0]) < DRIVER:
        yield f"NVIDIA driver {driver}, and TCPX needs {DRIVER} or later: nodes with another gpu-driver-version"
    if why := gpus.get("problem") or inventory.get("problems", {}).get("gpus"):
        yield f"NVML does not say whether MIG is on, which TCPX does not allow: {why}"
    mig = [str(index) for index, device in enumerate(gpus.get("devices", ())) if device["mig"]]
    if mig:
        yield (
            f"MIG is on, by NVML, on {plural('GPU', mig)} {listed(mig)}, which TCPX does not allow: use nodes without "
            "GPU partitions"
        )


def _wrong_nics(names: Sequence[str], nics: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    gone = [name for name in names if name not in nics]
    if gone:
        yield (
            f"{plural('interface', gone)} {listed(gone)} {is_are(gone)} missing (/sys/class/net): TCPX needs all "
            "four data networks in the pod, by hostNetwork or by networking.gke.io/interfaces"
        )
    down = [name for name in names if name in nics and nics[name]["state"] not in ("up", "unknown")]
    if down:
        yield (
            f"{plural('interface', down)} {listed(down)} {is_are(down)} down (/sys/class/net/…/operstate): see the node"
        )
    odd = {name: nics[name]["mtu"] for name in names if name in nics and nics[name]["mtu"] != MTU}
    if odd:
        sizes = listed([f"{name} has {mtu or 'none'}" for name, mtu in odd.items()])
        yield f"TCPX needs MTU {MTU}, and {sizes} (/sys/class/net/…/mtu): make the networks with --mtu={MTU}"


FABRIC = Fabric(
    "a3-tcpx",
    MARK,
    "GPUDirectTCPX",
    _needs,
    _problems,
    nccl_tests=("all_gather",),
    # As Google's script measured what the baseline says (run-nccl.sh in gpudirect-tcpx/nccl-config.yaml): the plugin's
    # own threads have the other cores, by NCCL_GPUDIRECTTCPX_{TX,RX}_BINDINGS.
    nccl_options={"b": "1M", "e": "512M", "n": "100"},
    nccl_cores="0-7,104-111,52-59,156-163",
)

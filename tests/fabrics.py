"""Inventories of pods that can use the fabric of their profile."""

from __future__ import annotations

from typing import Any

Nested = dict[str, Any]
NIC_MAP = ",".join(f"{index}:mlx5_{index}:1" for index in range(8))
PRELOAD = "/opt/deepep/nvshmem/lib/libnvshmem_host.so.3"


def gpus(driver: str = "580.95.05") -> Nested:
    device = {"model": "NVIDIA H100 80GB HBM3", "uuid": "GPU-1", "memory": 80 << 30, "mig": False}
    return {"files": 8, "driver": driver, "cuda": "13.0", "devices": [dict(device) for _ in range(8)]}


def rdma(index: int) -> Nested:
    gids = [
        {"index": 1, "gid": f"fe80:0000:0000:0000:0000:0000:0000:00{index:02x}", "type": "RoCE v2"},
        {"index": 2, "gid": f"0000:0000:0000:0000:0000:ffff:0a00:00{index:02x}", "type": "IB/RoCE v1"},
        {"index": 3, "gid": f"0000:0000:0000:0000:0000:ffff:0a00:00{index:02x}", "type": "RoCE v2"},
    ]
    port = {"port": 1, "state": "ACTIVE", "link": "Ethernet", "rate": "400 Gb/sec (4X NDR)", "gids": gids}
    return {"name": f"mlx5_{index}", "net": [f"gpu{index}rdma0"], "ports": [port]}


def loaded(directory: str) -> Nested:
    nccl = {"path": f"{directory}/libnccl.so.2", "version": "2.28.9"}
    return {"libnccl.so.2": nccl, "libnccl-net.so": {"path": f"{directory}/libnccl-net.so"}}


def of_gib() -> Nested:
    return {
        "environ": {"LD_LIBRARY_PATH": "/usr/local/gib/lib64:/usr/local/nvidia/lib64"},
        "files": {"/usr/local/gib/lib64/libnccl-net.so": True},
        "gpus": gpus(),
        "libraries": loaded("/usr/local/gib/lib64"),
        "rdma": [rdma(index) for index in range(8)],
    }


def of_deepep() -> Nested:
    environ = {"DEEP_EP_DEVICE_TO_HCA_MAPPING": NIC_MAP, "LD_PRELOAD": PRELOAD, "NVSHMEM_IB_GID_INDEX": "3"}
    return {**of_gib(), "environ": environ, "libraries": {PRELOAD: {"path": PRELOAD}}}


def of_tcpx() -> Nested:
    nics = [
        {"name": f"eth{index}", "state": "up", "mtu": 8244 if index else 1460, "speed": 200000, "address": "10.0.0.1"}
        for index in range(5)
    ]
    return {
        "environ": {"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"},
        "gpus": gpus("535.183.01"),
        "libraries": loaded("/usr/local/nvidia/lib64"),
        "nics": nics,
        "socket": {"directory": "/run/tcpx", "there": True, "waited": 2.0},
    }


GOOD = {"a4-gib": of_gib, "a4-deepep": of_deepep, "a3-tcpx": of_tcpx}

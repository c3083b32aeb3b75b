"""The inventory in few words."""

from __future__ import annotations

from typing import Any

import pytest

from agent.decide.inventory import fabric_variables, flat, profiler_problem

DEVICE = {"model": "NVIDIA B200", "uuid": "GPU-1", "memory": 192265846784, "mig": False}
TCPX = {"path": "/usr/local/nvidia/lib64/libnccl.so.2", "version": "2.19.4"}
NESTED: dict[str, Any] = {
    "kernel": "6.12.55+",
    "python": "3.12.3",
    "mpirun": "/usr/bin/mpirun",
    "cuda": "12.9.1",
    "cpus": {"allowed": 224, "quota": None, "model": "INTEL XEON"},
    "memory": {"total": 4 << 40, "limit": 2 << 40},
    "shm": {"size": 250 << 30, "free": 1},
    "limits": {"memlock": ["unlimited", "unlimited"]},
    "gpus": {"files": 8, "driver": "580.95.05", "cuda": "13.0", "devices": [DEVICE] * 8},
    "nics": [
        {"name": "eth0", "state": "up", "mtu": 1460},
        {"name": "gpu0rdma0", "state": "up", "mtu": 8896},
        {"name": "docker0", "state": "down", "mtu": 1500},
        {"name": "ib0", "state": "down", "mtu": None},
    ],
    "rdma": [{"name": "mlx5_0"}, {"name": "mlx5_1"}],
    "libraries": {
        "libnccl.so.2": {"path": "/usr/local/gib/lib64/libnccl.so.2", "version": "2.28.9"},
        "libnccl-net.so": {"path": "/usr/local/gib/lib64/libnccl-net.so"},
    },
    "torch": {"version": "2.9.0+cu129", "nccl": {"path": "/torch/libnccl.so.2", "version": "2.27.5"}},
}


def test_all_of_it() -> None:
    assert flat(NESTED) == {
        "kernel": "6.12.55+",
        "python": "3.12.3",
        "mpirun": "/usr/bin/mpirun",
        "cuda": "12.9.1",
        "cpus": "224",
        "cpu": "INTEL XEON",
        "memory": "2 TiB of 4 TiB (cgroup)",
        "shm": "250 GiB",
        "memlock": "unlimited",
        "gpus": "8 × NVIDIA B200",
        "gpu_memory": "179.1 GiB",
        "driver": "580.95.05",
        "driver_cuda": "13.0",
        "nics": "2 RDMA: mlx5_0 mlx5_1",
        "mtu": "eth0 1460, gpu0rdma0 8896",
        "nccl": "2.28.9 at /usr/local/gib/lib64/libnccl.so.2",
        "nccl_plugin": "/usr/local/gib/lib64/libnccl-net.so",
        "torch": "2.9.0+cu129",
        "nccl_torch": "2.27.5 at /torch/libnccl.so.2",
    }


NO_NCCL = "libnccl.so.2: cannot open shared object file: No such file or directory"
LOADED = "and NCCL 2.19.4 at /usr/local/nvidia/lib64/libnccl.so.2 is loaded, which lacks"
NCCL = NESTED["libraries"]["libnccl.so.2"]
PROFILER = {"NCCL_TELEMETRY_MODE": "3", "NCCL_PROFILER_PLUGIN": "comma", "NCCL_DEBUG": "INFO"}


def of_torch(version: str, *lacks: str) -> dict[str, Any]:
    return {"torch": {"version": version, "nccl": {**TCPX, "lacks": lacks}}}


@pytest.mark.parametrize(
    ("found", "name", "text"),
    [
        ({}, "", ""),
        ({"problem": "OSError: no memory"}, "problem", "OSError: no memory"),
        ({"problems": {"gpus": "not found out within 30 s"}}, "gpus_problem", "not found out within 30 s"),
        ({"problems": {"libraries": "OSError: x"}}, "nccl_problem", "OSError: x"),
        ({"problems": {"mpi": "OSError: x"}}, "mpirun_problem", "OSError: x"),
        ({"gpus": {**NESTED["gpus"], "devices": [], "problem": "no NVML"}}, "gpus_problem", "no NVML"),
        ({"gpus": {**NESTED["gpus"], "devices": [DEVICE, {**DEVICE, "mig": True}]}}, "mig", "on"),
        ({"libraries": {"libnccl.so.2": {"problem": NO_NCCL}}}, "", ""),
        ({"libraries": {"libnccl.so.2": {"problem": "libx: cannot open"}}}, "nccl_problem", "libx: cannot open"),
        ({"torch": {"problem": "no python3"}}, "torch_problem", "no python3"),
        ({"torch": {"version": "2.9.0"}}, "nccl_torch", ""),
        ({"libraries": {"libnccl.so.2": NCCL}, "torch": {"version": "2.9.0", "nccl": NCCL}}, "nccl_torch", ""),
        (
            of_torch("2.8.0", "ncclAbc", "ncclCommInitRankScalable"),
            "nccl_torch_problem",
            f"torch 2.8.0 needs NCCL 2.23 or later, {LOADED} ncclCommInitRankScalable and 1 more: import torch fails",
        ),
        (
            of_torch("3.0", "ncclNew"),
            "nccl_torch_problem",
            f"torch 3.0 needs a newer NCCL, {LOADED} ncclNew: import torch fails",
        ),
        ({"cpus": {"allowed": 8, "quota": 1.5, "model": ""}}, "cpus", "1.5 of 8 (cgroup)"),
        ({"memory": {"total": 1 << 30, "limit": None}}, "memory", "1 GiB"),
        ({"memory": {"total": None, "limit": 1 << 20}}, "memory", "1 MiB"),
        ({"memory": {"total": None, "limit": None}}, "memory", "0 B"),
        ({"shm": {"size": None}}, "shm", "0 B"),
        ({"limits": {"memlock": [65536, 65536]}}, "memlock", "64 KiB"),
        ({"environ": PROFILER}, "nccl_profiler", "NCCL_PROFILER_PLUGIN=comma NCCL_TELEMETRY_MODE=3"),
    ],
)
def test_one_thing(found: dict[str, Any], name: str, text: str) -> None:
    said = flat(found)
    assert said.get(name, "") == text if name else said == {}


def test_variables_that_decide_which_fabric_is_used() -> None:
    environ = {"NCCL_DEBUG": "INFO", "HF_TOKEN": "x", "LD_PRELOAD": "a", "NVSHMEM_HCA_PREFIX": "mlx5", "PATH": "/bin"}
    assert list(fabric_variables(environ)) == ["LD_PRELOAD", "NCCL_DEBUG", "NVSHMEM_HCA_PREFIX"]


INSPECTOR = "/opt/libnccl-profiler-inspector.so"


@pytest.mark.parametrize(
    ("plugin", "mode", "enable", "other"),
    [
        ("libcomma.so", "3", "0", ""),
        (INSPECTOR, "0", "1", ""),
        (INSPECTOR, "4", "", "NCCL_TELEMETRY_MODE=4"),
        ("libcomma.so", "", "1", "NCCL_PROFILER_PLUGIN=libcomma.so"),
        ("", "3", "1", "NCCL_TELEMETRY_MODE=3"),
    ],
)
def test_nccl_loads_one_profiler(plugin: str, mode: str, enable: str, other: str) -> None:
    said = profiler_problem(
        {"NCCL_PROFILER_PLUGIN": plugin, "NCCL_TELEMETRY_MODE": mode, "NCCL_INSPECTOR_ENABLE": enable}
    )
    assert bool(said) == bool(other) and f"({other})" in f"{said}()"

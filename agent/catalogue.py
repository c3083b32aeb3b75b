"""The workloads of this version. Settings, `run --help`, completion, schemas, chart and docs follow this list."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """One workload."""

    module: str
    """Imported when the workload is asked for."""
    class_name: str
    help: str = ""
    """One line for `a4-agent run --help`; empty for a workload with a verb of its own."""
    stall_seconds: float = 0.0
    """Limit of silence where neither settings nor command line give one; 0: none."""


WORKLOADS = {
    "none": Entry("agent.workloads.none", "Nothing", "form the cluster and write the hostfiles"),
    "connectivity": Entry(
        "agent.workloads.connectivity",
        "Connectivity",
        "MPI ranks on every pod: placement, an all-reduce, latency and bandwidth of neighbours",
    ),
    "collectives": Entry(
        "agent.workloads.collectives",
        "Collectives",
        "the sweep of nccl-tests by torch, over NCCL or gloo",
        stall_seconds=1800.0,
    ),
    "ddp": Entry("agent.workloads.ddp", "Ddp", "a small model trained with DistributedDataParallel on every GPU"),
    "nccl": Entry(
        "agent.workloads.nccl",
        "Nccl",
        "nccl-tests under mpirun: results, the network that NCCL used, and the speed",
        stall_seconds=1800.0,
    ),
    "deepep": Entry("agent.workloads.deepep", "DeepEp", "DeepEP's internode test", stall_seconds=1800.0),
    "pai-megatron-qwen3": Entry(
        "agent.workloads.pai_megatron",
        "Qwen3",
        "Qwen3-30B-A3B downloaded, converted and trained; its options are variables: docs/pai-megatron.md",
    ),
    "pai-megatron-qwen3-next": Entry(
        "agent.workloads.pai_megatron",
        "Qwen3Next",
        "Qwen3-Next-80B-A3B likewise",
    ),
    "script": Entry("agent.workloads.script", "Script", "the task script that is mounted in the pod, on every pod"),
    "exec": Entry("agent.workloads.exec", "Exec"),
    "mpirun": Entry("agent.workloads.mpirun", "Mpirun"),
    "torchrun": Entry("agent.workloads.torchrun", "Torchrun"),
}
RUNNABLE = tuple(name for name, entry in WORKLOADS.items() if entry.help)
"""Those that `a4-agent run` and A4_WORKLOAD take."""

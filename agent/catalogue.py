"""The workloads of this version. Settings, `run --help`, completion, schemas, chart and docs follow this list."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """One workload."""

    help: str = ""
    """One line for `a4-agent run --help`; empty for a workload with a verb of its own."""
    stall_seconds: float = 0.0
    """Limit of silence where neither settings nor command line give one; 0: none."""
    room: str = ""
    """The module or package, where that is not agent.workloads.NAME."""


WORKLOADS = {
    "none": Entry("form the cluster and write the hostfiles"),
    "connectivity": Entry("MPI ranks on every pod: placement, an all-reduce, latency and bandwidth of neighbours"),
    "collectives": Entry("the sweep of nccl-tests by torch, over NCCL or gloo", stall_seconds=1800.0),
    "ddp": Entry("a small model trained with DistributedDataParallel on every GPU"),
    "nccl": Entry("nccl-tests under mpirun: results, the network that NCCL used, and the speed", stall_seconds=1800.0),
    "deepep": Entry("DeepEP's own test of dispatch and combine between nodes", stall_seconds=1800.0),
    "find-slow": Entry(
        "GPUs alone, pairs of pods and all at once, to name what is slow or hangs", room="agent.clinic.find_slow"
    ),
    "pai-megatron-qwen3": Entry(
        "Qwen3-30B-A3B downloaded, converted and trained; its options are variables: docs/pai-megatron.md",
        room="agent.workloads.pai_megatron",
    ),
    "pai-megatron-qwen3-next": Entry("Qwen3-Next-80B-A3B likewise", room="agent.workloads.pai_megatron"),
    "script": Entry("the task script that is mounted in the pod, on every pod"),
    "exec": Entry(),
    "mpirun": Entry(),
    "torchrun": Entry(),
}
RUNNABLE = tuple(name for name, entry in WORKLOADS.items() if entry.help)
"""Those that `a4-agent run` and A4_WORKLOAD take."""

"""How fast DeepEP should be between nodes, and whether it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agent.workloads.deepep.elastic import DOMAINS, ELASTIC
from agent.workloads.deepep.printed import OPERATIONS, Node

BROKEN = 10.0
"""GB/s over RDMA of one GPU. One NIC for all eight gives 6.5, the right ones 54 to 81."""
MAPPING = "DEEP_EP_DEVICE_TO_HCA_MAPPING"
PERCENT = 90.0


class Reference(NamedTuple):
    """What somebody has measured and published: RDMA in GB/s by operation, the lower end where it is a range."""

    gpu: str
    nodes: int
    rdma: Mapping[str, float]
    source: str


GUIDE = "gpu-tpu-pedia, gpu/deepep/DEEPEP_GUIDE.md (2026-02-03)"
REFERENCES = (
    Reference("NVIDIA B200", 2, dict(zip(OPERATIONS, (70.0, 81.0, 75.0), strict=True)), GUIDE),
    Reference("NVIDIA B200", 4, dict(zip(OPERATIONS, (54.0, 57.0, 56.0), strict=True)), GUIDE),
)
SMALLEST = {"num_tokens": 2048, "hidden": 7168, "num_topk": 8}
"""What the references were measured with. Fewer tokens per rank are slower, more are not."""


class SpeedLimits(NamedTuple):
    """What the run was asked to reach."""

    percent: float
    """Percentage of the reference that is enough."""
    rdma: float
    """GB/s."""


class Speed(NamedTuple):
    """Whether it was fast enough. `reasons`: what was not, a sentence each."""

    reasons: Sequence[str]
    gate: Mapping[str, Any]
    """The `gate` of result.json."""


def judge_speed(nodes: Mapping[int, Node], count: int, limits: SpeedLimits, mapping: str | None) -> Speed:
    """Compare every node's best with the limits. `count`: nodes that took part; `mapping`: value of MAPPING.

    The floor (`limits.rdma`) always holds, the reference where there is one for these GPUs and nodes.
    """
    elastic = any(node.test == ELASTIC for node in nodes.values())
    slow = _below(nodes, dict.fromkeys(OPERATIONS, limits.rdma), "the floor (--min-rdma)")
    if not elastic and any(best.rdma < BROKEN for node in nodes.values() for best in node.best.values()) and slow:
        slow.append(_one_nic(mapping))
    reference, why_not = _reference(nodes, count) if not elastic else (None, _of_elastic(nodes))
    gate: dict[str, Any] = {"status": "not judged", "reason": why_not, "min_rdma": limits.rdma}
    if reference is not None:
        text = f"{limits.percent:g} % of the reference"
        wanted = {name: rdma * limits.percent / 100 for name, rdma in reference.rdma.items()}
        slow += [] if slow else _below(nodes, wanted, text)
        gate |= {
            "status": "passed",
            "reason": f"every node has {text} for {reference.nodes} nodes ({reference.source}), or more",
            "min_percent": limits.percent,
            "reference": {"rdma": dict(reference.rdma), "source": reference.source},
        }
    return Speed(slow, {**gate, "status": "failed", "reason": slow[0]} if slow else gate)


def _below(nodes: Mapping[int, Node], wanted: Mapping[str, float], what: str) -> list[str]:
    return [
        f"pod {index}: {name} {best.rdma:.2f} GB/s over RDMA, below {wanted[name]:.4g} GB/s, {what}"
        for index, node in nodes.items()
        for name, best in node.best.items()
        if name in wanted and best.rdma < wanted[name] and node.config.get(DOMAINS) != 1
    ]


def _one_nic(mapping: str | None) -> str:
    """The known cause."""
    told = f"is {mapping!r} here" if mapping else "is not set here"
    return (
        f"below {BROKEN:g} GB/s the GPU-NIC mapping is at fault, as far as is known: all GPUs send through mlx5_0. "
        f"{MAPPING} names a NIC for each GPU (0:mlx5_0:1,1:mlx5_1:1,…) and {told}; DeepEP must have pull request 466 "
        "to heed it. /sys/class/infiniband/mlx5_*/ports/1/counters/port_xmit_data shows which NICs send"
    )


def _of_elastic(nodes: Mapping[int, Node]) -> str:
    """Why there is nothing to compare the elastic test with."""
    if any(node.config.get(DOMAINS) == 1 for node in nodes.values()):
        return "with --allow-hybrid-mode 0 the elastic test does not tell RDMA from NVLink"
    if not any(node.best for node in nodes.values()):
        return "the test has measured nothing"
    return "no reference is known for the elastic test"


def _reference(nodes: Mapping[int, Node], count: int) -> tuple[Reference | None, str]:
    """What to compare with; or why there is nothing."""
    gpus = sorted({node.gpus for node in nodes.values()})
    if gpus == [""] or not gpus:
        return None, "there is no telling which GPUs these are"
    found = [one for one in REFERENCES if gpus == [f"8 × {one.gpu}"] and one.nodes == count]
    if not found:
        return None, f"no reference is known for {count} nodes of {' and of '.join(gpus)}"
    odd = [node.config for node in nodes.values() if not _comparable(node.config, count)]
    if odd:
        asked = ", ".join(f"{name}={value}" for name, value in odd[0].items())
        return (
            None,
            f"the reference is for {SMALLEST['num_tokens']} tokens or more, hidden 7168, top-k 8; this is {asked}",
        )
    return found[0], ""


def _comparable(config: Mapping[str, int], count: int) -> bool:
    same = all(config.get(name) == SMALLEST[name] for name in ("hidden", "num_topk"))
    groups = config.get("num_topk_groups") == min(count, 4)
    return same and groups and config.get("num_tokens", 0) >= SMALLEST["num_tokens"]

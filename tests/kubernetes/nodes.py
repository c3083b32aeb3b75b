"""The simulated nodes: two blocks of two sub-blocks of two machines, and the images that they know."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from itertools import product

from agent.workbench.local.spec import Place
from tests.kubernetes.kubelet.nodes import NodeSpec

IMAGE = "registry.example/a4-agent:1"
"""This machine's own programs, with the agent of the checkout,"""
TORCH = "registry.example/torch:1"
"""and with PyTorch."""
TOPOLOGY = "cloud.google.com/gce-topology"
CLUSTER = "test-bed"


def _digits(*words: object) -> str:
    return hashlib.sha256("/".join(map(str, words)).encode()).hexdigest()[:32]


def places() -> dict[str, Place]:
    """Where each node stands, by its name. Names do not follow places."""
    found = dict[str, Place]()
    for host, block, sub_block in product(range(2), range(2), range(2)):
        parts = (_digits(block), _digits(block, sub_block), _digits(block, sub_block, host))
        found[f"gke-test-bed-a4-{len(found)}"] = (CLUSTER, *parts)
    return found


def node(name: str, place: Place) -> NodeSpec:
    """As GKE labels an A4 node."""
    _, block, sub_block, host = place
    labels = {
        f"{TOPOLOGY}-block": block,
        f"{TOPOLOGY}-subblock": sub_block,
        f"{TOPOLOGY}-host": host,
        "cloud.google.com/gke-nodepool": "a4",
        "cloud.google.com/gke-accelerator": "nvidia-b200",
    }
    return NodeSpec(name, labels)


def images(torch: str, names: Iterable[str] = ()) -> dict[str, dict[str, str]]:
    """Their environments, by name. `torch` is the interpreter that has it; `names` are others of such images."""
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        # Pods cannot see that all of them share the cores of this machine: idle ranks must not spin.
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }
    with_torch = {**env, "A4_PYTHON": torch}
    return {IMAGE: env, TORCH: with_torch, **dict.fromkeys(names, with_torch)}

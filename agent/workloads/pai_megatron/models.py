"""The models that Pai-Megatron-Patch's scripts know by their size, and what is written in those scripts about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Size(NamedTuple):
    """One MODEL_SIZE."""

    model: str
    """Its name at Hugging Face and ModelScope."""
    gigabytes: float
    """The size of its weights in bf16; a converted copy, or a checkpoint without optimizer, takes as much."""
    layers: int
    """--num-layers of the scripts; for Qwen3-Next attention and MLP are layers of their own."""
    heads: int
    groups: int
    """Groups of key and value heads."""
    experts: int = 0
    """0: a dense model."""
    convertor: str = "run_8xH20.sh"
    convert_parallel: tuple[int, int, int] = (1, 1, 8)
    """Tensor, pipeline and expert parallel size of the convertor."""


class Family(NamedTuple):
    """What differs between the two workloads."""

    scripts: str
    """Directory of its scripts in `examples` and in the convertor's `scripts`."""
    label: str
    """Its name in the directories of checkpoints that the script makes."""
    outputs: str
    models: str
    converted: str
    datasets: str
    """Directories in the workspace, where the old recipes have them."""
    sizes: Mapping[str, Size]
    size: str
    defaults: Mapping[str, str]
    """Arguments of the training in which the two differ; the length is that of pretraining, a few iterations."""
    json_sft: bool = False
    """USE_JSON_SFT is known to its recipe."""


def _dense(model: str, gigabytes: float, layers: int, heads: int, stages: int = 4) -> Size:
    return Size(f"Qwen/Qwen3-{model}", gigabytes, layers, heads, 8, convert_parallel=(1, stages, 1))


QWEN3 = Family(
    scripts="qwen3",
    label="qwen3-moe-megatron",
    outputs="output_mcore_qwen3",
    models="qwen-ckpts",
    converted="qwen-ckpts",
    datasets="qwen-datasets",
    sizes={
        "0.6B": _dense("0.6B", 1.6, 28, 16),
        "1.7B": _dense("1.7B", 4.1, 28, 16),
        "4B": _dense("4B", 8.1, 36, 32),
        "8B": _dense("8B", 16.4, 36, 32),
        "14B": _dense("14B", 29.6, 40, 40, 8),
        "32B": _dense("32B", 65.6, 64, 64, 8),
        "A3B": Size("Qwen/Qwen3-30B-A3B", 61.1, 48, 32, 4, 128),
        "A22B": Size("Qwen/Qwen3-235B-A22B", 470.3, 94, 64, 4, 128, "run_A22B_16xH20.sh", (1, 2, 8)),
    },
    size="A3B",
    defaults={"SEQ_LEN": "128", "TP": "4", "PP": "2", "EP": "4", "AC": "sel"}
    | {"TRAIN_TOKENS": "10000", "WARMUP_TOKENS": "100"},
)
QWEN3_NEXT = Family(
    scripts="qwen3_next",
    label="qwen3-next",
    outputs="output_mcore_qwen3_next",
    models="ckpts/huggingface",
    converted="ckpts/mcore",
    datasets="datasets",
    sizes={"A3B": Size("Qwen/Qwen3-Next-80B-A3B-Instruct", 162.7, 96, 16, 2, 512)},
    size="A3B",
    defaults={"SEQ_LEN": "1024", "TP": "1", "PP": "1", "EP": "8", "AC": "none"}
    | {"TRAIN_TOKENS": "100000", "WARMUP_TOKENS": "1000"},
    json_sft=True,
)

"""What one token costs in the models whose sizes are known, and what GPUs can do at most.

Sizes are those of each model's config.json at Hugging Face; peaks those of NVIDIA's data sheets: dense BF16.
"""

from __future__ import annotations

from typing import NamedTuple


class ModelSize(NamedTuple):
    """Sizes of a mixture of experts, by the meaning of their names in config.json."""

    hidden: int
    layers: int
    heads: int
    groups: int
    """Heads of key and value."""
    head: int
    experts: int
    active: int
    """Experts that a token meets in each layer."""
    expert: int
    """Width of an expert."""
    vocabulary: int = 151_936
    shared: int = 0
    """Width of the expert that all tokens meet; 0: there is none."""
    every: int = 1
    """One layer of so many has full attention, the others linear attention."""
    gated: bool = False
    """Full attention has a gate as wide as its queries."""
    linear_keys: int = 0
    """Width of the keys of linear attention, all heads together."""
    linear_values: int = 0
    linear_heads: int = 0
    """Heads of its values."""
    convolution: int = 0

    @property
    def weights(self) -> int:
        """Weights that multiply each token: all but the embedding, the norms and the experts that it does not meet."""
        full = self.layers // self.every
        attention = full * self._attention() + (self.layers - full) * self._linear()
        return attention + self.layers * self._experts() + self.hidden * self.vocabulary

    def _attention(self) -> int:
        queries = self.heads * self.head
        return self.hidden * (queries * (3 if self.gated else 2) + 2 * self.groups * self.head)

    def _linear(self) -> int:
        projected = 2 * self.linear_keys + 2 * self.linear_values + 2 * self.linear_heads + self.linear_values
        return self.hidden * projected + self.convolution * (2 * self.linear_keys + self.linear_values)

    def _experts(self) -> int:
        shared = 3 * self.hidden * self.shared + (self.hidden if self.shared else 0)
        return self.hidden * self.experts + 3 * self.hidden * self.expert * self.active + shared

    def flop_per_token(self, sequence: int) -> int:
        """Forward and backward: 6 for each weight, and full attention to, on average, half of the sequence. What linear
        attention does besides its projections is left out: less than 2 %."""
        return 6 * self.weights + 6 * (self.layers // self.every) * sequence * self.heads * self.head


QWEN3_30B = ModelSize(hidden=2048, layers=48, heads=32, groups=4, head=128, experts=128, active=8, expert=768)
QWEN3_NEXT = ModelSize(
    hidden=2048,
    layers=48,
    heads=16,
    groups=2,
    head=256,
    experts=512,
    active=10,
    expert=512,
    shared=512,
    every=4,
    gated=True,
    linear_keys=2048,
    linear_values=4096,
    linear_heads=32,
    convolution=4,
)
MODELS = {"Qwen/Qwen3-30B-A3B": QWEN3_30B, "Qwen/Qwen3-Next-80B-A3B-Instruct": QWEN3_NEXT}
PEAKS = {
    "NVIDIA B200": 2250.0,
    "NVIDIA GB200": 2500.0,
    "NVIDIA H200": 989.0,
    "NVIDIA H100 80GB HBM3": 989.0,
    "NVIDIA A100-SXM4-80GB": 312.0,
    "NVIDIA A100-SXM4-40GB": 312.0,
}
"""GPU, as nvidia-smi names it → TFLOP/s."""

"""What one token costs in the models whose sizes are known, and what GPUs can do at most.

Sizes are those of each model's config.json at Hugging Face; peaks those of NVIDIA's data sheets: dense BF16.
"""

from __future__ import annotations

from typing import NamedTuple


class ModelSize(NamedTuple):
    """What a token meets of a model."""

    weights: int
    """Those that multiply it: all but the embedding, the norms and the experts that it does not meet."""
    attention: int
    """Layers of full attention × heads × size of a head."""

    def flop_per_token(self, sequence: int) -> int:
        """Forward and backward: 6 for each weight, and full attention to, on average, half of the sequence. What linear
        attention does besides its projections is left out: less than 2 %."""
        return 6 * self.weights + 6 * self.attention * sequence


# An expert has three matrices; the width of a layer is 2048, and there are 151,936 words.
# 48 layers of attention with 32 heads of 128, 4 of them of key and value; of 128 experts, 768 wide, a token meets 8.
QWEN3_30B = ModelSize(
    48 * 2048 * (2 * 32 * 128 + 2 * 4 * 128) + 48 * 2048 * (128 + 8 * 3 * 768) + 2048 * 151_936,
    attention=48 * 32 * 128,
)
# 12 layers of attention with 16 heads of 256 and a gate as wide, 2 of key and value. 36 layers of linear attention:
# keys 2048 wide, values 4096 with 32 heads, a convolution over 4. A token meets 10 of 512 experts, 512 wide, and one
# more, which has a gate, that all tokens meet.
QWEN3_NEXT = ModelSize(
    12 * 2048 * (3 * 16 * 256 + 2 * 2 * 256)
    + 36 * (2048 * (2 * 2048 + 3 * 4096 + 2 * 32) + 4 * (2 * 2048 + 4096))
    + 48 * 2048 * (512 + 11 * 3 * 512 + 1)
    + 2048 * 151_936,
    attention=12 * 16 * 256,
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

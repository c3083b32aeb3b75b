"""The one table of versions that the pipelines are known to work with; the recipes of the images follow it."""

from __future__ import annotations

REPOSITORY = "https://github.com/alibaba/Pai-Megatron-Patch.git"
COMMIT = "a098ca5acbdeaf7172ce0393fa309b39a77506db"
SUBMODULES = ("backends/megatron/Megatron-LM-250624", "backends/megatron/Megatron-LM-250908")
"""Those of COMMIT that the two examples use."""
DATASETS = "https://atp-modelzoo-wlcb-pai.oss-cn-wulanchabu.aliyuncs.com/release/models/pai-megatron-patch"

REQUIREMENTS = {
    "qwen3": {
        "datasets": "datasets==3.6.0",
        "numpy": "numpy<2",
        "packaging": "packaging==24.2",
        "transformers": "transformers>=4.51,<5",
    },
    "qwen3_next": {
        "datasets": "datasets==3.6.0",
        "numpy": "numpy<2",
        "packaging": "packaging==24.2",
        "transformers": "transformers>=4.57.0.dev0,<5",
    },
}
"""Scripts → package → requirement: pure Python, installed where an image lacks it."""
FROM_IMAGE = {
    "qwen3": {"torch": "torch>=2.6", "transformer-engine": "transformer-engine"},
    "qwen3_next": {
        "torch": "torch>=2.6",
        "transformer-engine": "transformer-engine",
        "triton": "triton",
        "mamba-ssm": "mamba-ssm",
        "causal-conv1d": "causal-conv1d",
        "flash-linear-attention": "flash-linear-attention",
    },
}
"""Packages with CUDA code, which no pod builds at its start."""

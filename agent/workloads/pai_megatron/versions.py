"""The one table of versions that the pipelines are known to work with: for their stages and the recipes of images."""

from __future__ import annotations

REPOSITORY = "https://github.com/alibaba/Pai-Megatron-Patch.git"
COMMIT = "a098ca5acbdeaf7172ce0393fa309b39a77506db"
SUBMODULES = ("backends/megatron/Megatron-LM-250624", "backends/megatron/Megatron-LM-250908")
"""Those of COMMIT that the two examples use."""
DATASETS = "https://atp-modelzoo-wlcb-pai.oss-cn-wulanchabu.aliyuncs.com/release/models/pai-megatron-patch"

PURE = {
    "datasets": "datasets==3.6.0",
    "numpy": "numpy<2",  # the scripts call numpy.product, which 2.0 removed
    "packaging": "packaging==24.2",
}
COMPILED = {
    "causal-conv1d": "causal-conv1d==1.5.2",
    "flash-linear-attention": "flash-linear-attention",
    "mamba-ssm": "mamba-ssm",
}
"""Qwen3-Next's layers."""
BASE = {"torch": "torch>=2.6", "transformer-engine": "transformer-engine"}
REQUIREMENTS = {
    "qwen3": {**PURE, "transformers": "transformers>=4.51,<5"},
    "qwen3_next": {**PURE, "transformers": "transformers>=4.57.0.dev0,<5"},
}
"""Scripts → package → requirement: installed where an image lacks it."""
FROM_IMAGE = {"qwen3": BASE, "qwen3_next": {**BASE, "triton": "triton", **COMPILED}}
"""Packages with CUDA code, which no pod builds at its start."""
IMAGES = {
    # As examples/qwen3_next in the repository has them; the commits are those that it names.
    "pai_megatron_patch_a4": {
        "packages": (
            *PURE.values(),
            "modelscope",
            "transformers @ git+https://github.com/huggingface/transformers@5f6e278a",
            "triton==3.2.0",
        ),
        "extensions": (
            *COMPILED.values(),
            "transformer-engine @ git+https://github.com/NVIDIA/TransformerEngine@c47f329b",  # 2.8.0.dev0
        ),
    },
    "unified-testbed-pytorch": {
        "packages": (
            *PURE.values(),
            "huggingface-hub[cli]>=0.34.0,<1.0",  # transformers of this line refuse 1.0
            "modelscope",
            "transformers<5",
            "triton>=3.5.0",  # the first for B200
        ),
        "extensions": tuple(COMPILED.values()),
    },
}
"""Image → what docker/steps/pai-packages.sh installs: packages, then extensions, which are built against its torch."""

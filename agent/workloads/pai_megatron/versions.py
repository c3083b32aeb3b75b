"""The one table of versions that the pipelines are known to work with: for their stages and the recipes of images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

REPOSITORY = "https://github.com/alibaba/Pai-Megatron-Patch.git"
COMMIT = "a098ca5acbdeaf7172ce0393fa309b39a77506db"
SUBMODULES = ("backends/megatron/Megatron-LM-250624", "backends/megatron/Megatron-LM-250908")
"""Those of COMMIT that the two examples use."""
DATASETS = "https://atp-modelzoo-wlcb-pai.oss-cn-wulanchabu.aliyuncs.com/release/models/pai-megatron-patch"


class PackageRow(NamedTuple):
    """A package: what is installed, and what is accepted."""

    installed: str
    """The version that the recipe of unified-testbed-pytorch installs; empty: that of its base."""
    accepted: str | None = None
    """What a pod must have, as pip writes it; None: it need not have it."""
    accepted_next: str | None = None
    """The same for Qwen3-Next; None: the same as for the others."""


PACKAGES = {
    "datasets": PackageRow("3.6.0", "==3.6.0"),
    "huggingface-hub": PackageRow("0.36.0"),  # transformers 4 refuse 1.0
    "modelscope": PackageRow("1.33.0"),
    "numpy": PackageRow("1.26.4", "<2"),  # the scripts call numpy.product, which 2.0 removed
    "packaging": PackageRow("24.2", "==24.2"),
    "transformers": PackageRow("4.57.3", ">=4.51,<5", ">=4.57.0.dev0,<5"),  # mamba-ssm 2.2 cannot be imported with 5
}
"""Where an image lacks what is accepted, a pod installs it at its start."""
EXTENSIONS = {
    "causal-conv1d": PackageRow("1.5.3.post1", None, ">=1.5.2"),  # nvcc 13 refuses 1.5.2's targets
    "flash-linear-attention": PackageRow("0.4.1", None, ">=0.3.2"),
    "mamba-ssm": PackageRow("2.2.6.post3", None, ">=2.2.5"),
    "triton": PackageRow("3.5.1", None, ">=3.3"),  # 3.2's ptxas does not know B200
}
"""Qwen3-Next's layers. A pod compiles nothing: its image has them."""
BASE = {
    "torch": PackageRow("", ">=2.6"),
    "transformer-engine": PackageRow("", "", ">=2.8.0.dev0"),
}
"""NVIDIA's own."""


def accepted(rows: Mapping[str, PackageRow], scripts: str) -> dict[str, str]:
    """Package → requirement, for the example of that name."""
    found = {}
    for name, row in rows.items():
        wanted = row.accepted if scripts != "qwen3_next" or row.accepted_next is None else row.accepted_next
        if wanted is not None:
            found[name] = f"{name}{wanted}"
    return found

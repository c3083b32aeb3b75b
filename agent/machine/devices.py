"""Device files of this pod."""

from __future__ import annotations

import os
import re


def gpu_count(root: str = "/") -> int:
    """NVIDIA devices that this pod can open."""
    return sum(bool(re.fullmatch(r"nvidia\d+", name)) for name in os.listdir(os.path.join(root, "dev")))

"""The NCCL that this process really has: LD_PRELOAD and LD_LIBRARY_PATH may bring another than torch was built with."""

from __future__ import annotations

import ctypes
import os
from typing import Any


def loaded_nccl(torch: Any) -> tuple[int, ...]:
    """Its version, as (2, 28, 9). `torch`, the module, knows it where NCCL is a part of torch's own library."""
    code = ctypes.c_int()
    try:
        ctypes.CDLL("libnccl.so.2", mode=os.RTLD_NOLOAD).ncclGetVersion(ctypes.byref(code))
    except OSError:
        return tuple(torch.cuda.nccl.version())
    return code.value // 10_000, code.value % 10_000 // 100, code.value % 100

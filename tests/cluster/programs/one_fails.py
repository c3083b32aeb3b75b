"""torchrun program: the process of rank 2 raises an exception when all are there; the others would stay for ever."""

from __future__ import annotations

import os
import time

print("here", flush=True)
if os.environ["RANK"] == "2":
    raise ValueError("rank 2 has had enough")
time.sleep(600)

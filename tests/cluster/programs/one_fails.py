"""torchrun program: the process of rank 2 raises an exception when all are there; the others would stay for ever."""

from __future__ import annotations

import os
import time
from pathlib import Path

HERE = Path("/mnt/here")  # every pod has it

HERE.mkdir(exist_ok=True)
rank, ranks, lead = (os.environ[name] for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"))
os.write(1, f"{rank} of {ranks} on {os.uname().nodename}, {lead}\n".encode())  # in one piece, unlike print
(HERE / rank).touch()
if rank == "2":
    while len(list(HERE.iterdir())) < int(ranks):
        time.sleep(0.1)
    raise ValueError("rank 2 has had enough")
time.sleep(600)

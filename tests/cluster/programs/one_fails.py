"""torchrun program: the process of rank 2 raises an exception when all are there; the others would stay for ever."""

from __future__ import annotations

import os
import time
from pathlib import Path

HERE = Path("/mnt/here")  # every pod has it

HERE.mkdir(exist_ok=True)
os.write(1, b"here\n")  # in one piece, unlike print
(HERE / os.environ["RANK"]).touch()
if os.environ["RANK"] == "2":
    while len(list(HERE.iterdir())) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.1)
    raise ValueError("rank 2 has had enough")
time.sleep(600)

"""torchrun program: every process says which it is, and where."""

from __future__ import annotations

import os
import sys

rank, ranks, node, local = (os.environ[name] for name in ("RANK", "WORLD_SIZE", "GROUP_RANK", "LOCAL_RANK"))
# One write: another process writes to the same pipe.
sys.stdout.write(f"{rank} of {ranks}, {node}.{local} on {os.uname().nodename} in {os.getcwd()}\n")

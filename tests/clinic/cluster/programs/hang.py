"""Ranks of which one never comes to what the others wait in:  hang.py CASE, "mpi" or any word for torch

Every rank makes /mnt/CASE-<rank> right before the call that it does not come back from.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from typing import Any

CASE = sys.argv[1]
NAMES = ("RANK", "OMPI_COMM_WORLD_RANK")
RANK = next(int(os.environ[name]) for name in NAMES if name in os.environ)
CULPRIT = 3
FOREVER = timedelta(days=1)


def here() -> None:
    open(f"/mnt/{CASE}-{RANK}", "w").close()


def sleep_in_python() -> None:
    here()
    time.sleep(100_000)


def torch_case() -> None:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=FOREVER)
    one = torch.ones(64)
    for _ in range(3):
        dist.all_reduce(one)
    os.write(1, f"rank {RANK} is at step 3\n".encode())  # in one piece, unlike print under -u
    one_sleeps(dist, torch)
    os.write(1, f"rank {RANK} is through\n".encode())


def one_sleeps(dist: Any, torch: Any) -> None:
    if RANK == CULPRIT:
        sleep_in_python()
    here()
    dist.all_reduce(torch.ones(64))


def mpi() -> None:
    from mpi4py import MPI

    if RANK == CULPRIT:
        sleep_in_python()
    here()
    MPI.COMM_WORLD.Barrier()


if __name__ == "__main__":
    mpi() if CASE == "mpi" else torch_case()

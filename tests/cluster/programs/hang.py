"""Ranks that stand still, each case in its own way:  hang.py CASE

Every rank makes /mnt/CASE-<rank> right before the call that it does not come back from.
"""

from __future__ import annotations

import ctypes
import os
import signal
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


def hold_the_gil() -> None:
    here()
    ctypes.PyDLL(None).sleep(100_000)


class Batches:
    """A data set whose only item never comes."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        os.mkfifo("/tmp/batches")
        here()
        return len(open("/tmp/batches").read())


def wait_for_a_worker() -> None:
    from torch.utils.data import DataLoader

    next(iter(DataLoader(Batches(), num_workers=1)))


def stop() -> None:
    here()
    os.kill(os.getpid(), signal.SIGSTOP)


def die_unnoticed() -> None:
    """Its launcher cannot notice: it is stopped. Nor can other ranks: a worker of it keeps its connections."""
    here()
    if os.fork() == 0:
        time.sleep(100_000)
    os.kill(os.getppid(), signal.SIGSTOP)
    os._exit(1)


def torch_case() -> None:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=FOREVER)
    one = torch.ones(64)
    for _ in range(3):
        dist.all_reduce(one)
    os.write(1, f"rank {RANK} is at step 3\n".encode())  # in one piece, unlike print under -u
    CASES[CASE](dist, torch)
    os.write(1, f"rank {RANK} is through\n".encode())


def culprit(action: Any) -> Any:
    def case(dist: Any, torch: Any) -> None:
        if RANK == CULPRIT:
            action()
        here()
        dist.all_reduce(torch.ones(64))

    return case


def other_operation(dist: Any, torch: Any) -> None:
    here()
    dist.broadcast(torch.ones(64), src=0) if RANK == CULPRIT else dist.all_reduce(torch.ones(64))
    dist.barrier()


def mpi() -> None:
    from mpi4py import MPI

    if RANK == CULPRIT:
        sleep_in_python()
    here()
    MPI.COMM_WORLD.Barrier()


CASES = {
    "sleeps": culprit(sleep_in_python),
    "stopped": culprit(stop),
    "gil": culprit(hold_the_gil),
    "loader": culprit(wait_for_a_worker),
    "dead": culprit(die_unnoticed),
    "operation": other_operation,
}

if __name__ == "__main__":
    mpi() if CASE == "mpi" else torch_case()

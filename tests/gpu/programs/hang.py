"""torchrun program: two ranks of NCCL that stand still, each case in its own way:  hang.py CASE

A rank makes /mnt/CASE-<rank> right before it stands still.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

CASE = sys.argv[1]
CULPRIT = 1
FOREVER = 1 << 62
"""Clock cycles of a kernel."""
WATCHDOG_SECONDS = 15

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
limit = timedelta(seconds=WATCHDOG_SECONDS) if CASE == "watchdog" else timedelta(days=1)
dist.init_process_group("nccl", device_id=device, timeout=limit)
rank = dist.get_rank()
value = torch.ones(1 << 20, device=device)


def here() -> None:
    open(f"/mnt/{CASE}-{rank}", "w").close()


def wait() -> None:
    here()
    torch.cuda.synchronize()


def load_batch() -> None:
    here()
    time.sleep(100_000)


def stop() -> None:
    here()
    os.kill(os.getpid(), signal.SIGSTOP)


def all_but(action: Callable[[], None]) -> Callable[[], None]:
    def case() -> None:
        if rank == CULPRIT:
            action()
        dist.all_reduce(value)
        wait()

    return case


def train_on() -> None:
    """torchrun has torch give the operation up before it ends the rank: until then, in torch 2.15, the rank goes on."""
    all_but(load_batch)()
    while True:
        dist.all_reduce(value)
        torch.cuda.synchronize()


def endless_kernel() -> None:
    if rank == CULPRIT:
        torch.cuda._sleep(FOREVER)
    dist.all_reduce(value)
    wait()


def receive() -> None:
    if rank == CULPRIT:
        load_batch()
    here()
    dist.recv(value, src=CULPRIT)
    torch.cuda.synchronize()


def leave_one_out() -> None:
    """The operation after it makes pairs of what does not belong together, and the last one of rank 0 has no pair."""
    if rank != CULPRIT:
        dist.all_reduce(value)
    dist.all_reduce(value)
    wait()
    load_batch()


CASES = {
    "late": all_but(load_batch),
    "watchdog": train_on,
    "stopped": all_but(stop),
    "left-out": leave_one_out,
    "kernel": endless_kernel,
    "receive": receive,
}

for _ in range(20):
    dist.all_reduce(value)
torch.cuda.synchronize()
print(f"rank {rank} is at the last step", flush=True)
CASES[CASE]()
